// The address is the whole state, so a link shows someone else exactly what you see.
//   /                       the runs            /RUN/prompt/4?...   a prompt
//   /RUN                    overview            /RUN/compare?...    two heads
//   /RUN/map?...            all heads           /try                a prompt of your own
//   /RUN/MODEL/16/3?...     a head

export function read(place = window.location) {
  const parts = place.pathname.split("/").filter(Boolean).map(decode);
  const query = new URLSearchParams(place.search);
  const state = { view: "runs", run: parts[0] ?? null, query };
  if (parts.length === 1) state.view = parts[0] === "try" ? "try" : "overview";
  else if (parts.length === 2) state.view = parts[1];
  else if (parts.length === 3)
    [state.view, state.prompt] = [parts[1], /^\d+$/.test(parts[2]) ? Number(parts[2]) : parts[2]];
  else if (parts.length > 4) state.view = parts.slice(1).join("/");
  else if (parts.length === 4) {
    state.view = "head";
    const number = (part) => (/^\d+$/.test(part) ? Number(part) : `'${part}'`);
    [state.model, state.layer, state.head] = [parts[1], number(parts[2]), number(parts[3])];
  }
  if (state.view === "try") state.run = null;
  return state;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// parts: the path; parameters: name -> value, or a list of values. Empty ones are left out; the token is kept.
export function address(parts, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") query.append(name, each);
    }
  }
  const token = new URLSearchParams(window.location.search).get("token");
  if (token) query.set("token", token);
  const text = query.toString();
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}

// replace: without a new entry in the history; show: also show the new address.
export function go(where, { replace = false, show = !replace } = {}) {
  if (where === window.location.pathname + window.location.search) return;
  window.history[replace ? "replaceState" : "pushState"](null, "", where);
  if (show) window.dispatchEvent(new Event("moved"));
}

// The conditions under which a model has prompts; while a run is being measured, some may be missing.
export function conditionsOf(facts, label) {
  const model = facts.models.find((each) => each.label === label);
  return facts.conditions.filter((each) => model.conditions.includes(each.name));
}

// Reads choices from the address. A value that the run does not have is replaced by the fallback, with a note.
export function choicesIn(query) {
  const notes = [];
  const one = (name, known, fallback) => {
    const value = query.get(name);
    if (value === null || value === "" || known.includes(value)) return value || fallback;
    notes.push(`The link asks for ${name} '${value.slice(0, 60)}', which this run does not have; showing ${fallback || "none"} instead.`);
    return fallback;
  };
  return { one, notes };
}

export const headAddress = (run, model, layer, head, more = {}) => address([run, model, layer, head], more);
