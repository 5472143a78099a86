// The address is the whole state: what a view shows can be sent to someone as a link.
//   /                       the runs            /RUN/prompt/4?...   a prompt
//   /RUN                    overview            /RUN/compare?...    two heads
//   /RUN/map?...            all heads           /try                a prompt of one's own
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

// parts: the path; parameters: name -> value, or a list of values. Empty ones are left out; a token stays.
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

// replace: no entry of its own in the history; show: have the new address shown.
export function go(where, { replace = false, show = !replace } = {}) {
  if (where === window.location.pathname + window.location.search) return;
  window.history[replace ? "replaceState" : "pushState"](null, "", where);
  if (show) window.dispatchEvent(new Event("moved"));
}

// The conditions under which a model has prompts: of a run that is being measured, not all may.
export function conditionsOf(facts, label) {
  const held = facts.models.find((each) => each.label === label);
  return facts.conditions.filter((each) => held.conditions.includes(each.name));
}

// What an address says of a choice, if it is one of those known; what it says in vain is noted.
export function chooser(query) {
  const notes = [];
  const one = (name, known, fallback) => {
    const said = query.get(name);
    if (said === null || said === "" || known.includes(said)) return said || fallback;
    notes.push(`The address says ${name} '${said.slice(0, 60)}', which is not here; this shows ${fallback || "none"}.`);
    return fallback;
  };
  return { one, notes };
}

export const headAddress = (run, model, layer, head, more = {}) => address([run, model, layer, head], more);
