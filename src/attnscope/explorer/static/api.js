// Questions to the server. A question that is no longer wanted is given up.

async function answer(response) {
  if (response.ok) return response;
  let told = null;
  try {
    told = await response.json();
  } catch {
    // not told in four parts
  }
  const error = new Error(told && told.what ? told.what : `the server answered ${response.status}`);
  if (told && told.what) error.told = told;
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

async function asked(path, options) {
  try {
    return await answer(await fetch(path, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof TypeError)
      throw new Error("the explorer no longer answers; is 'attnscope serve' still running?", { cause: error });
    throw error;
  }
}

export async function get(path, parameters, signal) {
  return (await asked(address(path, parameters), { signal })).json();
}

export async function post(path, body, parameters, signal) {
  const options = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  return (await asked(address(path, parameters), options)).json();
}

export async function file(path, body, parameters) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await asked(address(path, parameters), options)).blob();
}

export const runPath = (run, rest = "") => `runs/${encodeURIComponent(run)}${rest}`;
