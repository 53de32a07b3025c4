// SPDX-License-Identifier: Apache-2.0
// All tasks.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, link, none, section, some, table, to } from "./parts.js";
import { count, plural, share } from "./words.js";

export const title = () => "Tasks";
export const source = () => path("tasks");
export const every = 3;

export function view(data) {
  const { tasks, omitted } = data;
  return [
    h("h1", {}, "Tasks"),
    h("p", { class: "lead-quiet" }, "Is a job slow? Its page says what was looked at, and whether its network was well."),
    tasks.length ? [table("Training jobs whose endpoints are probed", [
      ["Task", (each) => link(to.task(each.id), each.id)],
      ["Network", (each) => verdict(each)],
      ["Hosts", (each) => count(each.hosts), "num"],
      ["Endpoints", (each) => count(each.endpoints), "num"],
      ["Probed", (each) => (each.list === "skeleton" ? "the pairs that it uses" : each.list === "basic" ? "all pairs of a rail" : each.list ?? "–")],
      ["Skeleton confidence", (each) => share(each.confidence), "num"],
    ], tasks), omitted ? h("p", { class: "note-line" }, `${count(omitted)} more tasks are left out.`) : null] : section("None", "none", none("No task is declared, and no endpoint names one.")),
  ];
}

function verdict(each) {
  const open = each.incidents;
  if (open.length) return [badge("confirmed", plural(open.length, "incident")), " ", some(open.map((id, n) => link(to.incident(id), each.at_fault[n] ?? "not known: insufficient evidence")), 2)];
  if (each.innocent === true) return badge("well", "innocent");
  if (each.innocent === false) return badge("open", "not innocent");
  return badge("unknown", "no incident; not asked");
}
