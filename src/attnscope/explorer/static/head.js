// One head: its attention along the prompt, by class and by prompt, its rank among all heads, and its kind.
import * as api from "./api.js";
import { Figure } from "./charts.js";
import { boxes, form, headSteps, noted, selectModel } from "./controls.js";
import { fill, h, number, rate, select, table, problemBox, withInterval } from "./dom.js";
import { address, choicesIn, conditionsOf, go, headAddress } from "./state.js";

function settings({ facts, state }) {
  const { one, notes } = choicesIn(state.query);
  const names = conditionsOf(facts, state.model).map((each) => each.name);
  const asked = state.query.getAll("condition");
  const condition = asked.filter((name) => names.includes(name));
  if (condition.length < asked.length) notes.push("The link names a condition that this run does not have.");
  const groups = facts.queries.map((each) => each.name);
  const queries = one("queries", groups, groups[0]);
  const available = facts.measures.filter((each) => each.queries.includes(queries)).map((each) => each.name);
  const first = available.find((name) => !facts.conditions[0].without.includes(name)) ?? available[0];
  const measure = one("measure", available, first);
  return { chosen: { queries, condition: condition.length ? condition : names, measure }, notes };
}

function specs({ model, layer, head }, chosen) {
  const place = { models: [model], layers: [layer], heads: [head] };
  const common = { conditions: chosen.condition, queries: chosen.queries };
  const form = chosen.condition.length > 1 ? {} : { form: "full" }; // a single condition has no other to share tokens with
  return {
    lines: { name: "lines", kind: "lines", panels: [{ model, layer, head }], ...common, ...form },
    bars: { name: "bars", kind: "bars", ...place, ...common },
    spread: { name: "spread", kind: "spread", ...place, ...common, measure: chosen.measure },
  };
}

export async function headView(main, context) {
  const { facts, signal, state } = context;
  const model = facts.models.find((each) => each.label === state.model);
  if (!model) throw new Error(`there is no model '${state.model}' in this run`);
  for (const [name, list] of [
    ["layer", model.layers],
    ["head", model.heads],
  ]) {
    if (!list.includes(state[name])) {
      throw new Error(
        `${name} ${state[name]} of ${state.model} was not measured; measured: ${list[0]} to ${list.at(-1)}`,
      );
    }
  }
  const { chosen, notes } = settings(context);
  const here = (changes = {}, place = {}) => {
    const { layer, head, label } = { layer: state.layer, head: state.head, label: state.model, ...place };
    return headAddress(facts.name, label, layer, head, { ...chosen, ...changes });
  };
  go(here(), { replace: true });
  const [before, next, above, below] = headSteps(context, model, state, (place) => here({}, place));
  const figures = {
    lines: new Figure({ open: false }),
    bars: new Figure({ open: false }),
    spread: new Figure({
      open: false,
      click: (datum) =>
        datum.prompt !== undefined &&
        go(
          address([facts.name, "prompt", datum.prompt], {
            model: state.model,
            condition: conditionOf(datum.series),
            queries: chosen.queries,
            layer: state.layer,
            head: state.head,
          }),
        ),
    }),
  };
  const conditionOf = (label) => facts.conditions.find((each) => label === each.label)?.name ?? chosen.condition[0];
  const summary = h("section", { class: "facts", "aria-label": "What kind of head" }, h("p", { class: "soft" }, "…"));
  fill(
    main,
    h("h1", {}, `Layer ${state.layer}, head ${state.head}`),
    noted(notes),
    h(
      "p",
      { class: "walk" },
      h("span", {}, state.model),
      " ",
      before,
      next,
      " layer ",
      above,
      below,
      " head ",
      h(
        "a",
        {
          href: address([facts.name, "compare"], {
            left_model: state.model,
            left_condition: chosen.condition[0],
            left_layer: state.layer,
            left_head: state.head,
            queries: chosen.queries,
          }),
        },
        "pin and compare",
      ),
      " ",
      h(
        "a",
        {
          href: address([facts.name, "prompt", facts.first_prompt], {
            model: state.model,
            condition: chosen.condition[0],
            layer: state.layer,
            head: state.head,
            queries: chosen.queries,
          }),
        },
        "show in a prompt",
      ),
    ),
    form(
      facts.models.length > 1 &&
        selectModel(facts, state.model, (label) => {
          const other = facts.models.find((each) => each.label === label);
          const layer = other.layers.includes(state.layer) ? state.layer : other.layers[0];
          const head = other.heads.includes(state.head) ? state.head : other.heads[0];
          go(here({}, { label, layer, head }));
        }),
      select("Attention from", facts.queries, chosen.queries, (queries) => go(here({ queries }))),
      select(
        "Dots show",
        facts.measures.filter((each) => each.queries.includes(chosen.queries)),
        chosen.measure,
        (measure) => go(here({ measure })),
      ),
      conditionsOf(facts, state.model).length > 1 &&
        boxes("Conditions", conditionsOf(facts, state.model), chosen.condition, (condition, box) => {
          if (condition.length) go(here({ condition }));
          else box.checked = true;
        }),
    ),
    summary,
    h("section", { "aria-label": "Along the prompt" }, figures.lines.element),
    h("div", { class: "two" }, figures.bars.element, figures.spread.element),
  );
  await context.calm;
  const figureSpecs = specs(state, chosen);
  const draw = async (name) => {
    try {
      await figures[name].show(facts.name, figureSpecs[name], signal);
    } catch (error) {
      if (!signal.aborted) figures[name].fail(error);
    }
  };
  const showSummary = async () => {
    try {
      const head = await api.get(
        api.runPath(facts.name, "/head"),
        { model: state.model, layer: state.layer, head: state.head, queries: chosen.queries },
        signal,
      );
      fill(summary, ...headFacts(head, facts));
    } catch (error) {
      if (!signal.aborted) fill(summary, problemBox(error));
    }
  };
  await Promise.all([showSummary(), draw("lines")]); // what is at the top comes first
  await Promise.all([draw("bars"), draw("spread")]);
}

function headFacts(head, facts) {
  const label = (name) => facts.conditions.find((each) => each.name === name)?.label ?? name;
  const kinds = head.kinds.map((each) =>
    h(
      "li",
      {},
      `${label(each.condition)}: `,
      h("strong", {}, each.kind ?? "unknown (patterns were not measured)"),
      ` · ${Object.entries(each.scores)
        .map(([name, value]) => `${name} ${value.toFixed(2)}`)
        .join(", ")}`,
    ),
  );
  const tested = head.changes.filter((each) => each.significant !== null);
  const significant = tested.filter((each) => each.significant).length;
  return [
    h("h2", {}, "Kind of head"),
    h("ul", { class: "kinds" }, kinds),
    h("h2", {}, "Among all heads"),
    h(
      "div",
      { class: "two" },
      table(
        ["mass on", "share", "rank"],
        head.ranks.map((each) => [each.what, number(each.value), `${each.rank} of ${each.of}`]),
        { caption: "By attention" },
      ),
      head.changes.length > 0 &&
        table(
          ["change in mass on", "difference", "q", "rank"],
          head.changes.map((each) => [
            each.what,
            withInterval(each.value, each.low, each.high),
            rate(each.q),
            each.rank === null ? "" : `${each.rank} of ${each.of}`,
          ]),
          {
            grayed: head.changes.map((each) => each.significant === false),
            caption: `By change: ${significant} of ${tested.length} tested are significant (q < 0.05) and larger than rounding`,
          },
        ),
    ),
  ];
}
