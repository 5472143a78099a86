// A prompt of one's own, measured now. It becomes a small run that all views show.
import * as api from "./api.js";
import { fill, h, trouble } from "./dom.js";
import { address, go } from "./state.js";

const EDITS = [
  ["nothing", "nothing"],
  ["repeat", "a string, repeated"],
  ["sentence", "random sentences"],
  ["random_tokens", "random tokens"],
  ["shuffle", "its own words, shuffled"],
  ["text", "a text of yours"],
];
const PAUSE = 400;
const LONGEST = 2000; // characters of a prompt that an address may hold

export async function tryView(main, context) {
  const { shown, signal, state } = context;
  if (!shown.live) {
    fill(main, h("h1", {}, "Try it"), h("p", {}, "Prompts can be tried if the explorer is started with --live MODEL."));
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
    EDITS.map(([name, words]) => h("option", { value: name, selected: name === (field("edit") ?? "repeat") }, words)),
  );
  const insertion = h("input", { value: field("insertion") ?? "...", "aria-label": "What to insert" });
  const tokens = h("input", { type: "number", min: 1, max: 4096, value: field("tokens") ?? 20 });
  const place = h(
    "select",
    {},
    ["before", "after"].map((each) => h("option", { value: each, selected: each === field("place") }, each)),
  );
  const outcome = h("section", { "aria-live": "polite" });
  const said = h("label", {}, h("span", {}, "What"), insertion);
  const many = h("label", {}, h("span", {}, "Tokens"), tokens);
  const where = h("label", {}, h("span", {}, "of the prompt"), place);
  const fit = () => {
    said.hidden = !["repeat", "text"].includes(edit.value);
    many.hidden = ["nothing", "text"].includes(edit.value);
    where.hidden = edit.value === "nothing";
  };
  edit.addEventListener("change", fit);
  fit();
  const button = h("button", {}, "Measure");
  fill(
    main,
    h("h1", {}, "Try it"),
    h("p", { class: "soft" }, `Measured by ${shown.live}, here and now.`),
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
        said,
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
      let tried = await api.post("tries", trial, {}, signal);
      while (["waiting", "measuring"].includes(tried.status)) {
        fill(
          outcome,
          h("p", {}, tried.status === "waiting" ? `waiting: ${tried.before} to go` : tried.doing),
          h("progress", { max: 1, value: tried.status === "waiting" ? null : tried.share, "aria-label": "progress" }),
        );
        await new Promise((resolve) => setTimeout(resolve, PAUSE));
        tried = await api.get(`tries/${tried.id}`, {}, signal);
      }
      if (tried.status === "failed") {
        const error = new Error(tried.trouble.what);
        error.told = tried.trouble;
        throw error;
      }
      go(address([tried.run, "prompt", 0], { beside: tried.edited ? "condition:edited" : "" }));
    } catch (error) {
      if (!signal.aborted) fill(outcome, trouble(error));
    } finally {
      button.disabled = false;
    }
  }
}
