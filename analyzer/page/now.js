// SPDX-License-Identifier: Apache-2.0
// The state of it all: what is broken, and just as plainly what is not watched.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, icon, incidents, name, none, section, table } from "./parts.js";
import { count, number } from "./words.js";

export const title = () => "Now";
export const source = () => path("now");
export const every = 1;

const COUNTS = [["hosts", "hosts"], ["rnics", "RNICs"], ["tasks", "tasks"], ["pairs", "pairs"], ["probes_per_s", "probes/s"]];

export function view(data) {
  const counts = data.counts ?? {};
  const behind = counts.windows_behind;
  return [
    h("h1", {}, "Now"),
    h("p", { class: "lead" }, badge(data.state), " ", name(data.line, "sentence")),
    h("ul", { class: "counts", "aria-label": "What is watched" },
      COUNTS.map(([key, text]) => h("li", {}, h("b", {}, counts[key] === null || counts[key] === undefined ? "–" : number(counts[key])), ` ${text}`)),
      behind ? h("li", { class: "warn" }, h("b", {}, count(behind)), ` windows behind`) : null),
    (data.analyzer ?? []).length ? h("div", { class: "note" }, h("h2", {}, "The analyzer itself"),
      h("ul", {}, data.analyzer.map((each) => h("li", {}, name(each))))) : null,
    section("Incidents", "incidents", data.incidents.length
      ? [incidents(data.incidents, "Active incidents"),
        data.incidents_omitted ? h("p", { class: "note-line" }, `${count(data.incidents_omitted)} more are active.`) : null]
      : none(data.state === "well" ? "None is active." : "None is active; see below what is not watched.")),
    section("Not watched", "unwatched", unwatched(data.unwatched)),
    section("Recovered lately", "recovered", data.recovered.length
      ? incidents(data.recovered, "The incidents that recovered last") : none("None."),
    h("p", {}, h("a", { href: "#/incidents" }, "All incidents that are kept"))),
  ];
}

function unwatched(list) {
  const found = list.filter((each) => each.count !== 0);
  if (!found.length) return none("Nothing that is known of: each host is heard, each path is known, each endpoint is probed.");
  return table("What nothing can be said of, and why", [
    ["What", (each) => [icon("silent"), "\u00a0", name(each.what)]],
    ["How many", (each) => each.of === null || each.of === undefined ? count(each.count) : `${count(each.count)} of ${count(each.of)}`, "num"],
    ["Why", (each) => name(each.why), "wide"],
    ["Such as", (each) => (each.examples ?? []).map((text, n) => [n ? ", " : "", name(text)])],
  ], found);
}
