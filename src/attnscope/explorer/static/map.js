// All heads at once: a measure, or what a condition or another model changes in it.
import { Figure } from "./charts.js";
import { form, noted, otherOf, others, selectModel } from "./controls.js";
import { fill, h, number, rate, say, select, table, withEnds } from "./dom.js";
import { address, chooser, conditionsOf, go, headAddress } from "./state.js";

// What the address says, filled in where it says nothing.
function settings({ facts, state }) {
  const { one, notes } = chooser(state.query);
  const models = facts.models.map((each) => each.label);
  const queries = one(
    "queries",
    facts.queries.map((each) => each.name),
    facts.queries[0].name,
  );
  const there = facts.measures.filter((each) => each.queries.includes(queries));
  const model = one("model", models, models[0]);
  const conditions = conditionsOf(facts, model).map((each) => each.name);
  const condition = one("condition", conditions, conditions[0]);
  const without = facts.conditions.find((each) => each.name === condition).without;
  const first = there.find((each) => !without.includes(each.name)) ?? there[0];
  const measure = one(
    "measure",
    there.map((each) => each.name),
    first.name,
  );
  const less = one(
    "less",
    conditions.filter((name) => name !== condition),
    "",
  );
  const than = less
    ? ""
    : one(
        "than",
        models.filter((label) => label !== model),
        "",
      );
  const enriched = there.find((each) => each.name === measure).enrichment;
  const value = enriched ? one("value", ["mass", "enrichment"], "mass") : "mass";
  const sort = one("sort", ["depth", "effect"], "depth");
  return { chosen: { model, condition, queries, measure, value, less, than, sort }, notes };
}

function part(chosen) {
  const made = { name: "map", kind: "heatmap", measure: chosen.measure, queries: chosen.queries };
  if (chosen.value === "enrichment") made.value = "enrichment";
  if (chosen.sort === "effect") made.sort = "effect";
  if (chosen.less) return { ...made, models: [chosen.model], difference: [chosen.less, chosen.condition] };
  if (chosen.than) return { ...made, conditions: [chosen.condition], difference: [chosen.than, chosen.model] };
  return { ...made, models: [chosen.model], conditions: [chosen.condition] };
}

export async function mapView(main, context) {
  const { facts, signal } = context;
  const { chosen, notes } = settings(context);
  const here = (changes = {}) => address([facts.name, "map"], { ...chosen, ...changes });
  go(here(), { replace: true });
  const clash = { condition: "less", model: "than" }; // nothing is taken from itself
  const set = (name) => (value) =>
    go(here({ [name]: value, ...(chosen[clash[name]] === value ? { [clash[name]]: "" } : {}) }));
  const queries = facts.queries.find((each) => each.name === chosen.queries);
  const there = facts.measures.filter((each) => each.queries.includes(chosen.queries));
  const differences = others(facts, chosen);
  const lessOf = (value) => {
    const { kind, name } = otherOf(value);
    go(here({ less: kind === "condition" ? name : "", than: kind === "model" ? name : "" }));
  };
  const numbered = chosen.than || chosen.model; // whose layers and heads the cells are: the first of two models
  const open = (layer, head) =>
    go(headAddress(facts.name, numbered, layer, head, { queries: chosen.queries, measure: chosen.measure }));
  const figure = new Figure({
    heading: "h2",
    click: (datum) => datum.layer !== undefined && datum.head !== undefined && open(datum.layer, datum.head),
  });
  const ranking = h("section", {}, h("h2", {}, "Heads that stand out"), h("p", { class: "soft" }, "…"));
  fill(
    main,
    h("h1", {}, "All heads"),
    noted(notes),
    form(
      select("Measure", there, chosen.measure, set("measure")),
      there.find((each) => each.name === chosen.measure).enrichment &&
        select(
          "as",
          [
            { name: "mass", label: "share of attention" },
            { name: "enrichment", label: "times a uniform gaze" },
          ],
          chosen.value,
          set("value"),
        ),
      selectModel(facts, chosen.model, set("model")),
      select("Condition", conditionsOf(facts, chosen.model), chosen.condition, set("condition")),
      differences.length > 1 &&
        select(
          "less",
          differences,
          chosen.less ? `condition:${chosen.less}` : chosen.than ? `model:${chosen.than}` : "",
          lessOf,
        ),
      select("Gaze of", facts.queries, chosen.queries, set("queries")),
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
    h("p", { class: "soft hint" }, "Click a cell to open the head. Arrow keys walk over the map, Enter opens."),
    figure.element,
    ranking,
  );
  let drawn;
  try {
    drawn = await figure.show(facts.name, part(chosen), signal);
  } catch (error) {
    if (signal.aborted) return;
    figure.fail(error);
    ranking.remove();
    return;
  }
  const changed = Boolean(chosen.less || chosen.than);
  const tested = drawn.top.some((row) => row.q !== null);
  fill(
    ranking,
    h("h2", {}, "Heads that stand out"),
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
        changed ? withEnds(row.value, row.low, row.high) : number(row.value),
        ...(tested ? [rate(row.q)] : []),
        String(row.n ?? ""),
      ]),
      { grayed: drawn.top.map((row) => row.sure === false), caption: `Largest in size, gaze of ${queries.label}` },
    ),
  );
  walk(context, figure, chosen, numbered, open);
}

// Arrow keys move a cursor over the map as it is drawn: sorted by effect, down is to the next weaker head.
function walk(context, figure, chosen, numbered, open) {
  const model = context.facts.models.find((each) => each.label === numbered);
  const at = { layer: 0, row: 0 };
  let found = null;
  const move = (layers, rows) => () => {
    if (found) {
      at.layer = Math.min(model.layers.length - 1, Math.max(0, at.layer + layers));
      at.row = Math.min(model.heads.length - 1, Math.max(0, at.row + rows));
    }
    const down = chosen.sort === "effect" ? { row: at.row + 1 } : { head: model.heads[at.row] };
    found?.each.classList.remove("cursor");
    found = figure.cell({ layer: model.layers[at.layer], ...down });
    if (!found) {
      say("no value here");
      return;
    }
    found.each.classList.add("cursor");
    found.each.parentNode.append(found.each);
    const { layer, head, value, q, floor } = found.datum;
    const unsure = (q !== null && q >= 0.05) || (floor !== null && Math.abs(value) <= floor);
    say(`layer ${layer} head ${head}: ${number(value)}${unsure ? ", may be chance or rounding" : ""}`);
  };
  Object.assign(context.keys, {
    ArrowRight: move(1, 0),
    ArrowLeft: move(-1, 0),
    ArrowDown: move(0, 1),
    ArrowUp: move(0, -1),
    Enter: () => found && open(found.datum.layer, found.datum.head),
  });
}
