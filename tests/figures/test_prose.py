"""A document says the same in every form, and text in it stays text whatever it looks like."""

from __future__ import annotations

import html as standard
import re

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from attnscope.figures import prose
from attnscope.figures.prose import Bullets, Document, Paragraph, Section, Strong, Table, document

SMALL = document("T", {"A": [None, (Strong("one"), ": yes."), ""], "B": [None]})
WORDS = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf")), min_size=1, max_size=30
)
SIGNS = st.text(alphabet="ab1 .)(*_`~#>-+|[]!<>/&;\\=:'\"", min_size=1, max_size=20)


def test_what_does_not_hold_leaves_no_line_and_no_heading() -> None:
    assert prose.markdown(SMALL) == "# T\n\n## A\n\n- **one**: yes.\n"
    assert prose.html(SMALL) == "<h4>A</h4>\n<ul>\n<li><strong>one</strong>: yes.</li>\n</ul>"
    assert prose.alt_text(SMALL) == "T A: one: yes."
    items = [[{"text": "one", "strong": True}, {"text": ": yes.", "strong": False}]]
    assert prose.as_json(SMALL) == {"title": "T", "sections": [{"heading": "A", "items": items}]}


def test_a_document_of_sections_within_sections_and_tables_is_written_in_order() -> None:
    table = Table(("class", "q|s"), (("a", "-0.01"), ("b", "0.5")), (False, True))
    doc = Document("C", (Section("x minus y", (Paragraph("n = 3."), Section("last", (table,)))),))
    assert prose.markdown(doc) == (
        "# C\n\n## x minus y\n\nn = 3.\n\n### last\n\n"
        "| class | q\\|s |\n| --- | --- |\n| a | -0.01 |\n| *b* | *0.5* |\n"
    )
    shown = prose.html(doc, 3)
    assert "<h3>x minus y</h3>\n<p>n = 3.</p>\n<h4>last</h4>" in shown
    assert '<tr class="gray"><td>b</td><td>0.5</td></tr>' in shown
    assert prose.as_json(doc)["sections"][0]["sections"][0]["tables"][0]["rows"] == [["a", "-0.01"], ["b", "0.5"]]


def rendered_text(markup: str) -> str:
    return " ".join(standard.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


@given(st.one_of(WORDS, SIGNS))
@example("- [x](http://a) **b** _c_ `d` <script>alert(1)</script> &amp; # 1. 2)")
@example("1. one")
@example("_a_ a_b_c __init__")
@example("***")
@example("0 #")
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    doc = Document(text, (Section(text, (Bullets((text, (Strong("k"), f": {text}"))), Paragraph(text))),))
    shown = MarkdownIt("commonmark").render(prose.markdown(doc))
    tags = re.findall(r"</?(\w+)", shown)
    assert set(tags) <= {"h1", "h2", "ul", "li", "p", "strong"}, shown
    want = " ".join(text.split())
    assert [rendered_text(each) for each in re.findall(r"<h\d>(.*?)</h\d>", shown, re.DOTALL)] == [want, want]
    assert rendered_text(re.findall(r"<p>(.*?)</p>", shown, re.DOTALL)[-1] if want else "") == want
    if want:
        items = re.findall(r"<li>(.*?)</li>", shown, re.DOTALL)
        assert [rendered_text(each).replace("k :", "k:") for each in items] == [want, f"k: {want}"]


@given(st.one_of(WORDS, SIGNS))
def test_html_has_no_element_that_the_document_did_not_ask_for(text: str) -> None:
    doc = Document(text, (Section(text, (Bullets((text,)), Table((text,), ((text,),), (False,)))),))
    shown = str(prose.html(doc))
    elements = {"h4", "ul", "li", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(re.findall(r"<\s*/?(\w*)", shown)) == elements
    assert shown.count("<li>") == 1
