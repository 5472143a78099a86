// A prompt of your own, measured now. It becomes a small run that all views can show.
import * as api from "./api.js";
import { fill, h, problemBox } from "./dom.js";
import { address, go } from "./state.js";

const EDITS = [
  ["nothing", "nothing"],
  ["repeat", "a repeated string"],
  ["sentence", "random sentences"],
  ["random_tokens", "random tokens"],
  ["shuffle", "its own words, shuffled"],
  ["text", "your own text"],
];
const PAUSE = 400;
const LONGEST = 2000; // characters of a prompt that fit in an address

export async function tryView(main, context) {
  const { runList, signal, state } = context;
  if (!runList.live) {
    fill(main, h("h1", {}, "Try it"), h("p", {}, "To try prompts, start the explorer with --live MODEL."));
    return;
  }
  const field = (name) => state.query.get(name);
  const text = h(
    "textarea",
    { rows: 6, required: true, "aria-label": "The prompt", placeholder: "Type a prompt …" },
    field("text") ?? "",
  );
  const chat = h("input", { type: "checkbox", checked: field("chat") === "yes" });
  const edit = h(
    "select",
    {},
    EDITS.map(([name, label]) => h("option", { value: name, selected: name === (field("edit") ?? "repeat") }, label)),
  );
  const insertion = h("input", { value: field("insertion") ?? "...", "aria-label": "What to insert" });
  const tokens = h("input", { type: "number", min: 1, max: 4096, value: field("tokens") ?? 20 });
  const place = h(
    "select",
    {},
    ["before", "after"].map((each) => h("option", { value: each, selected: each === field("place") }, each)),
  );
  const outcome = h("section", { "aria-live": "polite" });
  const what = h("label", {}, h("span", {}, "What"), insertion);
  const many = h("label", {}, h("span", {}, "Tokens"), tokens);
  const where = h("label", {}, h("span", {}, "of the prompt"), place);
  const showFields = () => {
    what.hidden = !["repeat", "text"].includes(edit.value);
    many.hidden = ["nothing", "text"].includes(edit.value);
    where.hidden = edit.value === "nothing";
  };
  edit.addEventListener("change", showFields);
  showFields();
  const button = h("button", {}, "Measure");
  fill(
    main,
    h("h1", {}, "Try it"),
    h("p", { class: "soft" }, `Measured now, with ${runList.live}.`),
    h(
      "form",
      {
        class: "try",
        onsubmit: (event) => {
          event.preventDefault();
          measure();
        },
      },
      text,
      h(
        "div",
        { class: "controls" },
        h("label", { class: "check" }, chat, "as a chat message"),
        h("label", {}, h("span", {}, "Insert into a copy"), edit),
        what,
        many,
        where,
        button,
      ),
    ),
    outcome,
  );
  text.focus();

  async function measure() {
    const trial = {
      text: text.value,
      chat: chat.checked,
      edit: edit.value,
      insertion: insertion.value || "...",
      tokens: Number(tokens.value),
      place: place.value,
    };
    const short = trial.text.length <= LONGEST ? trial : { ...trial, text: "" };
    go(address(["try"], { ...short, chat: trial.chat ? "yes" : "" }), { replace: true });
    button.disabled = true;
    try {
      let trialStatus = await api.post("trials", trial, {}, signal);
      while (["waiting", "measuring"].includes(trialStatus.status)) {
        fill(
          outcome,
          h("p", {}, trialStatus.status === "waiting" ? `waiting: ${trialStatus.ahead} ahead` : trialStatus.step),
          h("progress", { max: 1, value: trialStatus.status === "waiting" ? null : trialStatus.progress, "aria-label": "progress" }),
        );
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
        trialStatus = await api.get(`trials/${trialStatus.id}`, {}, signal);
      }
      if (trialStatus.status === "failed") {
        const error = new Error(trialStatus.problem.what);
        error.problem = trialStatus.problem;
        throw error;
      }
      go(address([trialStatus.run, "prompt", 0], { beside: trialStatus.edited ? "condition:edited" : "" }));
    } catch (error) {
      if (!signal.aborted) fill(outcome, problemBox(error));
    } finally {
      button.disabled = false;
    }
  }
}
