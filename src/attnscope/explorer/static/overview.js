// A run at a glance: its question, main figure, observations and evidence.
import * as api from "./api.js";
import { Figure } from "./charts.js";
import { fill, h, reading, sentence, table, problemBox } from "./dom.js";
import { address, go } from "./state.js";

const KEY = 6; // observations at the top

export function runsView({ runs }) {
  return h(
    "section",
    {},
    h("h1", {}, "Runs"),
    h(
      "ul",
      { class: "runs" },
      runs.map((run) =>
        h(
          "li",
          {},
          run.problem ? h("strong", {}, run.name) : h("a", { href: address([run.name]) }, run.title),
          run.title !== run.name && h("span", { class: "soft" }, ` ${run.name} `),
          h("span", { class: `badge ${run.status}` }, run.status),
          run.question && h("p", {}, run.question),
          run.problem && h("p", { class: "soft" }, `${run.problem.what}: ${run.problem.todo}`),
        ),
      ),
    ),
  );
}

export async function overviewView(main, context) {
  const { facts, signal } = context;
  const [first, ...others] = facts.figures;
  const observations = h("ul", { class: "observations" }, h("li", { class: "soft" }, "…"));
  const figure = new Figure({ heading: "h2", open: false });
  const query = context.state.query;
  const unfolded = { figure: query.getAll("figure"), comparisons: query.get("comparisons") ?? "" };
  const unfold = (change) => go(address([facts.name], Object.assign(unfolded, change)), { replace: true });
  const evidence = h("div", {}, h("p", { class: "soft" }, "…"));
  const comparisons = h("div", {}, h("p", { class: "soft" }, "Open to load."));
  const more = h("div", {});
  fill(
    main,
    h("h1", {}, facts.title),
    facts.question && h("p", { class: "question" }, facts.question),
    facts.answer.length > 0 &&
      h("section", { class: "answer", "aria-label": "Answer" }, facts.answer.map((sentence) => h("p", {}, sentence))),
    h("p", { class: "soft" }, facts.summary, " ", h("span", { class: `badge ${facts.status}` }, facts.status)),
    facts.answer.length
      ? h("details", {}, h("summary", {}, "What the main figure shows"), observations)
      : h("section", { "aria-label": "Key observations" }, h("h2", {}, "Key observations"), observations),
    h("section", { "aria-label": "Main figure" }, figure.element),
    others.length > 0 &&
      h(
        "section",
        {},
        h("h2", {}, "More figures"),
        h(
          "p",
          { class: "buttons" },
          others.map((each) =>
            h(
              "button",
              {
                type: "button",
                disabled: unfolded.figure.includes(each.name),
                onclick: (event) => {
                  event.target.disabled = true;
                  unfold({ figure: [...unfolded.figure, each.name] });
                  showMore(each);
                },
              },
              each.title,
            ),
          ),
        ),
        more,
      ),
    h("section", {}, h("h2", {}, "Evidence"), evidence),
    h(
      "details",
      {
        open: unfolded.comparisons === "open",
        ontoggle: (event) => {
          unfold({ comparisons: event.target.open ? "open" : "" });
          if (event.target.open) loadComparisons();
        },
      },
      h("summary", {}, h("h2", {}, "Comparisons")),
      comparisons,
    ),
    dropped(facts),
    facts.command && h("section", {}, h("h2", {}, "How to run it again"), h("pre", {}, facts.command)),
  );

  for (const each of others) if (unfolded.figure.includes(each.name)) showMore(each);

  async function showMore(each) {
    const another = new Figure({ open: false });
    more.append(another.element);
    try {
      await another.show(facts.name, each.spec, signal);
    } catch (error) {
      another.fail(error);
    }
  }

  async function loadComparisons() {
    try {
      const comparisonList = await api.get(api.runPath(facts.name, "/comparisons"), {}, signal);
      fill(
        comparisons,
        h(
          "p",
          { class: "soft" },
          "Means over heads with 95 % bootstrap intervals; q is the false discovery rate within a family of tests; gray: not significant, or within rounding.",
        ),
        ...comparisonList.map((each, place) =>
          h(
            "details",
            { open: place === 0 },
            h("summary", {}, each.name),
            h("p", {}, each.facts.join(" ")),
            each.tables.map(({ columns, rows, grayed, title }) => table(columns, rows, { grayed, caption: title })),
          ),
        ),
        ...(comparisonList.length ? [] : [h("p", {}, "With one condition and one model, there is nothing to compare.")]),
      );
    } catch (error) {
      if (!signal.aborted) fill(comparisons, problemBox(error));
    }
  }

  const spec = first?.spec ?? startMap(facts);
  figure
    .show(facts.name, spec, signal)
    .then((drawn) => {
      const itemsOf = (heading) => drawn.reading.find((section) => section.heading === heading)?.items ?? [];
      const observed = itemsOf("Observations");
      const items = observed.length ? observed : itemsOf("Numbers");
      fill(observations, ...items.slice(0, KEY).map((item) => h("li", {}, sentence(item))));
      if (!items.length) fill(observations, h("li", {}, "The reading below the figure has its numbers."));
    })
    .catch((error) => {
      if (!signal.aborted) figure.fail(error);
    });
  api
    .get(api.runPath(facts.name, "/evidence"), {}, signal)
    .then((sections) => fill(evidence, reading(sections, { title: "Why you can trust the numbers" })))
    .catch((error) => {
      if (!signal.aborted) fill(evidence, problemBox(error));
    });
}

function firstMeasure(facts) {
  const { without } = facts.conditions.find((each) => each.name === facts.models[0].conditions[0]);
  return (facts.measures.find((each) => !without.includes(each.name)) ?? facts.measures[0]).name;
}

function startMap(facts) {
  return {
    name: "map",
    kind: "heatmap",
    measure: firstMeasure(facts),
    models: [facts.models[0].label],
    conditions: [facts.models[0].conditions[0]],
  };
}

function dropped(facts) {
  const lines = facts.dropped.map((each) =>
    h("li", {}, `${each.model}, ${each.condition}, prompt ${each.prompt}: ${each.reason}`),
  );
  return h(
    "section",
    {},
    h("h2", {}, "Dropped prompts"),
    lines.length
      ? h("ul", {}, lines, facts.more_dropped > 0 && h("li", {}, `and ${facts.more_dropped} more, in the manifest`))
      : h("p", {}, "None."),
    facts.empty.length > 0 && h("p", {}, `Classes without a token that the queries see: ${facts.empty.join(", ")}.`),
  );
}
