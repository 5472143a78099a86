// Requests to the server. A request whose result is no longer needed is aborted.

async function checked(response) {
  if (response.ok) return response;
  let problem = null;
  try {
    problem = await response.json();
  } catch {
    // not in four parts
  }
  const error = new Error(problem?.what ?? `the server responded with ${response.status}`);
  if (problem?.what) error.problem = problem;
  throw error;
}

function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.append(name, value);
  }
  const text = query.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

async function request(path, options) {
  try {
    return await checked(await fetch(path, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof TypeError)
      throw new Error("the explorer does not respond; is 'attnscope serve' still running?", { cause: error });
    throw error;
  }
}

export async function get(path, parameters, signal) {
  return (await request(address(path, parameters), { signal })).json();
}

export async function post(path, body, parameters, signal) {
  const options = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  return (await request(address(path, parameters), options)).json();
}

export async function file(path, body, parameters) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await request(address(path, parameters), options)).blob();
}

export const runPath = (run, rest = "") => `runs/${encodeURIComponent(run)}${rest}`;
