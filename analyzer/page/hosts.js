// SPDX-License-Identifier: Apache-2.0
// All hosts, by the beginning of their names.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, link, name, none, table, to } from "./parts.js";
import { count, span } from "./words.js";

export const title = () => "Hosts";
export const source = (_, query) => path("hosts", { q: query.q, limit: 50 });
export const every = 3;

export function view(data, { query, go }) {
  const { hosts, omitted } = data;
  const field = h("input", { id: "q", name: "q", type: "search", value: query.q ?? "", maxlength: 200, spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    go(`#/hosts?${new URLSearchParams({ q: field.value })}`);
  };
  return [
    h("h1", {}, "Hosts"),
    h("form", { class: "fields", role: "search", onsubmit: submit }, h("div", {}, h("label", { for: "q" }, "Name begins with"), field), h("button", {}, "Find")),
    hosts.length ? [table("Hosts whose names begin so", [
      ["Host", (each) => link(to.host(each.id), each.id)],
      ["Agent", (each) => (each.state ? badge(each.state, each.state === "silent" ? undefined : "heard") : "–")],
      ["Last heard", (each) => (each.silent_ms === null || each.silent_ms === undefined ? "–" : `${span(each.silent_ms / 1e3)} ago`), "num"],
      ["Version", (each) => name(each.version)],
    ], hosts), omitted ? h("p", { class: "note-line" }, `${count(omitted)} more begin so.`) : null] : none("No host is known by such a name."),
  ];
}
