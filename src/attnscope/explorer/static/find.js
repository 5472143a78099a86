// `/`: go to a head by its numbers, or to a prompt by its number or words.
import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { address, go, headAddress } from "./state.js";

export function openFind(context) {
  const { facts, state } = context;
  const dialog = document.getElementById("find");
  const words = document.getElementById("find-words");
  const list = document.getElementById("find-results");
  if (!facts || dialog.open) return;
  let turn = 0;
  let results = [];
  const visit = (where) => {
    dialog.close();
    go(where);
  };
  const render = () =>
    fill(
      list,
      ...results.map(({ label, where }) =>
        h(
          "li",
          {},
          h(
            "a",
            {
              href: where,
              onclick: (event) => {
                event.preventDefault();
                event.stopPropagation();
                visit(where);
              },
            },
            label,
          ),
        ),
      ),
    );
  const search = async () => {
    const mine = ++turn;
    const text = words.value.trim();
    const heads = headsOf(text, facts, state);
    results = heads;
    render();
    if (!text) return;
    try {
      const matches = await api.get(api.runPath(facts.name, "/prompts"), { find: text });
      if (mine !== turn) return;
      results = [
        ...heads,
        ...matches.prompts.slice(0, 12).map((each) => ({
          label: `prompt ${each.number}${each.name === String(each.number) ? "" : ` (${each.name})`}: ${each.excerpt}`,
          where: address([facts.name, "prompt", each.number]),
        })),
      ];
      if (matches.total > 12)
        results.push({
          label: `and ${matches.total - 12} more prompts; type more words`,
          where: address([facts.name, "prompt", matches.prompts[0].number]),
        });
      if (!results.length) fill(list, h("li", { class: "soft" }, "nothing matches"));
      else render();
    } catch (error) {
      fill(list, h("li", { class: "problem" }, error.message));
    }
  };
  words.oninput = search;
  words.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (results.length) visit(results[0].where);
    }
  };
  words.value = "";
  render();
  dialog.showModal();
  words.focus();
}

// "16 3", "16.3", "L16 H3", "layer 16 head 3"
function headsOf(text, facts, state) {
  const numbers = text.match(/^\D{0,8}(\d{1,4})\D{1,8}(\d{1,4})\D?$/);
  if (!numbers) return [];
  const [layer, head] = [Number(numbers[1]), Number(numbers[2])];
  const models = [...facts.models].sort((one, two) => (two.label === state.model) - (one.label === state.model));
  return models
    .filter((each) => each.layers.includes(layer) && each.heads.includes(head))
    .map((each) => ({
      label: `layer ${layer} head ${head} of ${each.label}`,
      where: headAddress(facts.name, each.label, layer, head),
    }));
}
