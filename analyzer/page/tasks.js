// SPDX-License-Identifier: Apache-2.0
// All tasks.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, link, none, section, some, table, to } from "./parts.js";
import { count, share } from "./words.js";

export const title = () => "Tasks";
export const source = () => path("tasks");
export const every = 3;

export function view(data) {
  const tasks = Array.isArray(data) ? data : data.tasks;
  return [
    h("h1", {}, "Tasks"),
    h("p", { class: "lead-quiet" }, "Is a job slow? Its page says what was looked at, and whether its network was well."),
    tasks.length ? table("Training jobs whose endpoints are probed", [
      ["Task", (each) => link(to.task(each.id), each.id)],
      ["Network", (each) => verdict(each)],
      ["Hosts", (each) => count(size(each.hosts)), "num"],
      ["Endpoints", (each) => count(size(each.endpoints)), "num"],
      ["Probed", (each) => (each.list === "skeleton" ? "the pairs that it uses" : each.list === "basic" ? "all pairs of a rail" : each.list ?? "–")],
      ["Skeleton sure", (each) => share(each.confidence), "num"],
    ], tasks) : section("None", "none", none("No task is declared, and no endpoint names one.")),
  ];
}

const size = (value) => (Array.isArray(value) ? value.length : value);

function verdict(each) {
  const open = each.incidents ?? [];
  if (size(open)) {
    return [badge("confirmed", Array.isArray(open) ? "" : `${open} open`), Array.isArray(open) ? some(open.map((i) =>
      typeof i === "string" ? link(to.incident(i), i) : link(to.incident(i.id), i.component ?? i.id)), 3) : null];
  }
  if (each.innocent === true) return badge("well", "innocent");
  if (each.innocent === false) return badge("open", "not innocent");
  return badge("unknown", "no incident; not asked");
}
