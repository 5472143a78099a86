// Controls that views share: menus, check boxes, and steps from one head or prompt to the next.
import { h, select } from "./dom.js";
import { go } from "./state.js";

export function form(...children) {
  return h("form", { class: "controls", onsubmit: (event) => event.preventDefault() }, children);
}

export function selectModel(facts, chosen, change) {
  const options = facts.models.map(({ label }) => ({ name: label, label }));
  return select("Model", options, chosen, change);
}

// Notes on what the address asks for that the run does not have.
export function noted(notes) {
  return notes.map((note) => h("p", { class: "note", role: "status" }, note));
}

export const numbers = (list) => list.map((each) => ({ name: String(each), label: String(each) }));

// The other conditions and models of a run, each named by kind and name.
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

export function otherOf(value) {
  const [kind, ...rest] = value.split(":");
  return { kind, name: rest.join(":") };
}

// options: name and label; icon: an element before the label. change gets the checked names.
export function boxes(legend, options, checked, change, icon = () => null) {
  const toggle = (name) => (event) => {
    const names = options
      .map((each) => each.name)
      .filter((each) => (each === name ? event.target.checked : checked.includes(each)));
    change(names, event.target);
  };
  return h(
    "fieldset",
    {},
    h("legend", {}, legend),
    options.map((each) =>
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", checked: checked.includes(each.name), onchange: toggle(each.name) }),
        icon(each),
        each.label,
      ),
    ),
  );
}

const ARROWS = { ArrowLeft: "◀", ArrowRight: "▶", ArrowUp: "▲", ArrowDown: "▼" };

// Steps to neighbours, by key and by link. neighbours: key -> { where, label }; where is null at an end.
export function steps(context, neighbours) {
  return Object.entries(neighbours).map(([key, { where, label }]) => {
    context.keys[key] = () => where && go(where, { replace: true, show: true }); // the back button skips the whole walk
    return where
      ? h("a", { href: where, class: "step", "aria-label": label, title: label }, ARROWS[key])
      : h("span", { class: "step off", "aria-hidden": "true" }, ARROWS[key]);
  });
}

// Steps to the neighbouring layers and heads. address: gives that of another layer or head.
export function headSteps(context, model, place, address) {
  const step = (name, by) => {
    const list = model[`${name}s`];
    const next = list[list.indexOf(place[name]) + by];
    return next === undefined ? null : address({ [name]: next });
  };
  return steps(context, {
    ArrowLeft: { where: step("layer", -1), label: "previous layer" },
    ArrowRight: { where: step("layer", 1), label: "next layer" },
    ArrowUp: { where: step("head", -1), label: "previous head" },
    ArrowDown: { where: step("head", 1), label: "next head" },
  });
}
