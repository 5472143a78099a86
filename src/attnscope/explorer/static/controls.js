// What views share: choices of models and of what to set beside them, boxes to tick, and steps to walk by.
import { h, select } from "./dom.js";
import { go } from "./state.js";

export function form(...children) {
  return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, children);
}

export function selectModel(facts, chosen, change) {
  const options = facts.models.map(({ label }) => ({ name: label, label }));
  return select("Model", options, chosen, change);
}

// What the address says that is not so.
export function noted(notes) {
  return notes.map((note) => h("p", { class: "note", role: "status" }, note));
}

export const numbers = (list) => list.map((each) => ({ name: String(each), label: String(each) }));

// The other conditions and models of a run, each told by its kind and name.
export function others(facts, { model, condition }) {
  return [
    { name: "", label: "nothing" },
    ...facts.conditions
      .filter((each) => each.name !== condition)
      .map((each) => ({ name: `condition:${each.name}`, label: each.label })),
    ...facts.models
      .filter((each) => each.label !== model)
      .map((each) => ({ name: `model:${each.label}`, label: each.label })),
  ];
}

export function otherOf(told) {
  const [kind, ...rest] = told.split(":");
  return { kind, name: rest.join(":") };
}

// options: name and label; sign: an element before the label. change gets the names that are ticked.
export function boxes(legend, options, ticked, change, sign = () => null) {
  const tick = (name) => (event) => {
    const kept = options
      .map((each) => each.name)
      .filter((each) => (each === name ? event.target.checked : ticked.includes(each)));
    change(kept, event.target);
  };
  return h(
    "fieldset",
    {},
    h("legend", {}, legend),
    options.map((each) =>
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", checked: ticked.includes(each.name), onchange: tick(each.name) }),
        sign(each),
        each.label,
      ),
    ),
  );
}

const SIGNS = { ArrowLeft: "◀", ArrowRight: "▶", ArrowUp: "▲", ArrowDown: "▼" };

// Steps to other places, by key and by link. ways: key -> { where, label }; where is null at an end.
export function steps(context, ways) {
  return Object.entries(ways).map(([key, { where, label }]) => {
    context.keys[key] = () => where && go(where, { replace: true, show: true }); // a walk is one step back
    return where
      ? h("a", { href: where, class: "step", "aria-label": label, title: label }, SIGNS[key])
      : h("span", { class: "step off", "aria-hidden": "true" }, SIGNS[key]);
  });
}

// The layers and heads next to one. address: of another layer or head.
export function headSteps(context, model, place, address) {
  const step = (name, by) => {
    const list = model[`${name}s`];
    const next = list[list.indexOf(place[name]) + by];
    return next === undefined ? null : address({ [name]: next });
  };
  return steps(context, {
    ArrowLeft: { where: step("layer", -1), label: "the layer before" },
    ArrowRight: { where: step("layer", 1), label: "the next layer" },
    ArrowUp: { where: step("head", -1), label: "the head before" },
    ArrowDown: { where: step("head", 1), label: "the next head" },
  });
}
