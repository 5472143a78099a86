// All heads at once: a measure, or how a condition or another model changes it.
import { Figure } from "./charts.js";
import { form, noted, otherOf, others, selectModel } from "./controls.js";
import { announce, fill, h, number, rate, select, table, withInterval } from "./dom.js";
import { address, choicesIn, conditionsOf, go, headAddress } from "./state.js";

// What the address says, completed with defaults.
function settings({ facts, state }) {
  const { one, notes } = choicesIn(state.query);
  const models = facts.models.map((each) => each.label);
  const queries = one(
    "queries",
    facts.queries.map((each) => each.name),
    facts.queries[0].name,
  );
  const available = facts.measures.filter((each) => each.queries.includes(queries));
  const model = one("model", models, models[0]);
  const conditions = conditionsOf(facts, model).map((each) => each.name);
  const condition = one("condition", conditions, conditions[0]);
  const without = facts.conditions.find((each) => each.name === condition).without;
  const first = available.find((each) => !without.includes(each.name)) ?? available[0];
  const measure = one(
    "measure",
    available.map((each) => each.name),
    first.name,
  );
  const minus = one(
    "minus",
    conditions.filter((name) => name !== condition),
    "",
  );
  const minus_model = minus
    ? ""
    : one(
        "minus_model",
        models.filter((label) => label !== model),
        "",
      );
  const enriched = available.find((each) => each.name === measure).enrichment;
  const value = enriched ? one("value", ["mass", "enrichment"], "mass") : "mass";
  const sort = one("sort", ["depth", "effect"], "depth");
  return { chosen: { model, condition, queries, measure, value, minus, minus_model, sort }, notes };
}

function specOf(chosen) {
  const spec = { name: "map", kind: "heatmap", measure: chosen.measure, queries: chosen.queries };
  if (chosen.value === "enrichment") spec.value = "enrichment";
  if (chosen.sort === "effect") spec.sort = "effect";
  if (chosen.minus) return { ...spec, models: [chosen.model], difference: [chosen.minus, chosen.condition] };
  if (chosen.minus_model) return { ...spec, conditions: [chosen.condition], difference: [chosen.minus_model, chosen.model] };
  return { ...spec, models: [chosen.model], conditions: [chosen.condition] };
}

export async function mapView(main, context) {
  const { facts, signal } = context;
  const { chosen, notes } = settings(context);
  const here = (changes = {}) => address([facts.name, "map"], { ...chosen, ...changes });
  go(here(), { replace: true });
  const clash = { condition: "minus", model: "minus_model" }; // nothing is subtracted from itself
  const set = (name) => (value) =>
    go(here({ [name]: value, ...(chosen[clash[name]] === value ? { [clash[name]]: "" } : {}) }));
  const queries = facts.queries.find((each) => each.name === chosen.queries);
  const available = facts.measures.filter((each) => each.queries.includes(chosen.queries));
  const differences = others(facts, chosen);
  const subtract = (value) => {
    const { kind, name } = otherOf(value);
    go(here({ minus: kind === "condition" ? name : "", minus_model: kind === "model" ? name : "" }));
  };
  const numbered = chosen.minus_model || chosen.model; // the model whose layers and heads number the cells
  const open = (layer, head) =>
    go(headAddress(facts.name, numbered, layer, head, { queries: chosen.queries, measure: chosen.measure }));
  const figure = new Figure({
    heading: "h2",
    click: (datum) => datum.layer !== undefined && datum.head !== undefined && open(datum.layer, datum.head),
  });
  const ranking = h("section", {}, h("h2", {}, "Strongest heads"), h("p", { class: "soft" }, "…"));
  fill(
    main,
    h("h1", {}, "All heads"),
    noted(notes),
    form(
      select("Measure", available, chosen.measure, set("measure")),
      available.find((each) => each.name === chosen.measure).enrichment &&
        select(
          "as",
          [
            { name: "mass", label: "share of attention" },
            { name: "enrichment", label: "relative to uniform attention" },
          ],
          chosen.value,
          set("value"),
        ),
      selectModel(facts, chosen.model, set("model")),
      select("Condition", conditionsOf(facts, chosen.model), chosen.condition, set("condition")),
      differences.length > 1 &&
        select(
          "minus",
          differences,
          chosen.minus ? `condition:${chosen.minus}` : chosen.minus_model ? `model:${chosen.minus_model}` : "",
          subtract,
        ),
      select("Attention from", facts.queries, chosen.queries, set("queries")),
      select(
        "Sort",
        [
          { name: "depth", label: "by depth" },
          { name: "effect", label: "by effect" },
        ],
        chosen.sort,
        set("sort"),
      ),
    ),
    h("p", { class: "soft hint" }, "Click a cell to open the head, or move with the arrow keys and press Enter."),
    figure.element,
    ranking,
  );
  let drawn;
  try {
    drawn = await figure.show(facts.name, specOf(chosen), signal);
  } catch (error) {
    if (signal.aborted) return;
    figure.fail(error);
    ranking.remove();
    return;
  }
  const changed = Boolean(chosen.minus || chosen.minus_model);
  const tested = drawn.top.some((row) => row.q !== null);
  fill(
    ranking,
    h("h2", {}, "Strongest heads"),
    table(
      ["", "head", changed ? "change" : "value", ...(tested ? ["q"] : []), "prompts"],
      drawn.top.map((row, place) => [
        String(place + 1),
        h(
          "a",
          {
            href: headAddress(facts.name, numbered, row.layer, row.head, {
              queries: chosen.queries,
              measure: chosen.measure,
            }),
          },
          `layer ${row.layer} head ${row.head}`,
        ),
        changed ? withInterval(row.value, row.low, row.high) : number(row.value),
        ...(tested ? [rate(row.q)] : []),
        String(row.n ?? ""),
      ]),
      { grayed: drawn.top.map((row) => row.significant === false), caption: `Largest absolute values, attention from ${queries.label}` },
    ),
  );
  walk(context, figure, chosen, numbered, open);
}

// Arrow keys move a cursor over the map as drawn: if sorted by effect, down is the next weaker head.
function walk(context, figure, chosen, numbered, open) {
  const model = context.facts.models.find((each) => each.label === numbered);
  const at = { layer: 0, row: 0 };
  let cell = null;
  const move = (layers, rows) => () => {
    if (cell) {
      at.layer = Math.min(model.layers.length - 1, Math.max(0, at.layer + layers));
      at.row = Math.min(model.heads.length - 1, Math.max(0, at.row + rows));
    }
    const down = chosen.sort === "effect" ? { row: at.row + 1 } : { head: model.heads[at.row] };
    cell?.each.classList.remove("cursor");
    cell = figure.cell({ layer: model.layers[at.layer], ...down });
    if (!cell) {
      announce("no value here");
      return;
    }
    cell.each.classList.add("cursor");
    cell.each.parentNode.append(cell.each);
    const { layer, head, value, q, floor } = cell.datum;
    const changed = Boolean(chosen.minus || chosen.minus_model);
    const insignificant = q >= 0.05 || (floor !== null && Math.abs(value) <= floor);
    const significance = q === null ? ", not tested" : insignificant ? ", not significant or within rounding" : "";
    announce(`layer ${layer} head ${head}: ${number(value)}${changed ? significance : ""}`);
  };
  Object.assign(context.keys, {
    ArrowRight: move(1, 0),
    ArrowLeft: move(-1, 0),
    ArrowDown: move(0, 1),
    ArrowUp: move(0, -1),
    Enter: () => cell && open(cell.datum.layer, cell.datum.head),
  });
}
