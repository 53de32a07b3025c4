// SPDX-License-Identifier: Apache-2.0
// What is asked of the analyzer. All of it is on the same origin.

export class Refused extends Error {
  constructor(status, text, remedy) {
    super(text);
    this.status = status;
    this.remedy = remedy;
  }
}

export function path(view, query = {}) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") asked.set(name, value);
  }
  const tail = asked.toString();
  return `/v1/views/${view}${tail ? `?${tail}` : ""}`;
}

export const get = (where, signal) => ask(where, { signal });

export function post(where, body, signal) {
  const headers = { "content-type": "application/json" };
  return ask(where, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function ask(where, options) {
  let answer;
  try {
    answer = await fetch(where, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the analyzer does not answer", "see whether it runs, and whether you reach it");
  }
  const text = await answer.text();
  let said = null;
  try {
    said = JSON.parse(text);
  } catch {
    // told below
  }
  if (answer.ok && said !== null) return said;
  const why = said?.error ?? said?.detail ?? said?.title ?? `answered ${answer.status}`;
  throw new Refused(answer.status, String(why), String(said?.remedy ?? REMEDIES[answer.status] ?? ""));
}

const REMEDIES = {
  401: "run `netagent-analyzer open` for a new link",
  403: "run `netagent-analyzer open` for a new link",
  404: "it is not known any more, or not yours to see",
};
