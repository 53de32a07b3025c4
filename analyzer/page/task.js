// SPDX-License-Identifier: Apache-2.0
// One task: is it the network?

import { path } from "./api.js";
import { h } from "./dom.js";
import { heat } from "./heat.js";
import { open } from "./matrix.js";
import { badge, choice, facts, icon, incidents, name, none, section, series, some, to } from "./parts.js";
import { count, label, measure, number, plural, share, span, time } from "./words.js";

export const title = (id) => `Task ${id}`;
export const source = (id) => path(`task/${encodeURIComponent(id)}`);
export const every = 6;

const KINDS = { dp: "data parallel", pp: "pipeline", tp: "tensor parallel", ep: "expert parallel" };
const SHOWN = new Set(["id", "skeleton", "matrix", "series", "incidents", "inquiry", "missing", "list", "at_ns"]);

export function view(data, { id, query, go }) {
  const show = query.show === "delay" ? "delay" : "loss";
  return [
    h("h1", {}, "Task ", name(data.id ?? id)),
    innocence(data, id),
    section("Incidents", "incidents", data.incidents.length
      ? incidents(data.incidents, "Incidents that this task was part of") : none("None is open.")),
    (data.missing ?? []).length ? section("Missing", "missing", h("p", {}, icon("silent"), " ",
      some(data.missing.map((each) => [name(each.container), " declared ", time(each.declared_ns)]), 10))) : null,
    section("The last hour", "series", series("Probes of this task by minute", data.series ?? [], [[3, "mean round trip"]], "task")),
    section("Between its ends", "matrix", data.matrix ? [
      h("div", { class: "controls" }, choice("Show", [["loss", "Loss"], ["delay", "Delay"]], show,
        (chosen) => go(`${to.task(id)}?show=${chosen}`))),
      heat(data.matrix, `Probes by ${data.matrix.by}`, show, (row, col) => open(data.matrix, row, col, show)),
    ] : none("Nothing is known of it yet.")),
    section("What it is", "declared", facts(declared(data))),
    section("Its skeleton", "skeleton", skeleton(data.skeleton)),
  ];
}

function declared(data) {
  const given = data.declared !== null && typeof data.declared === "object" ? data.declared : {};
  const flat = Object.entries({ ...data, ...given }).filter(([key, value]) => !SHOWN.has(key) && !(key === "declared" && typeof value === "object"));
  return flat.map(([key, value]) => [label(key), Array.isArray(value) ? some(value.map((each) =>
    key === "hosts" ? h("a", { href: to.host(each) }, name(each)) : name(measure("", each))), 12)
    : key.endsWith("_ns") ? time(value, true) : value === "" ? "–" : name(measure(key, value))]);
}

function innocence(data, id) {
  const asked = data.inquiry;
  const open = data.incidents.filter((each) => !each.recovered_ns);
  const more = h("p", {}, h("a", { href: to.diagnose({ task: id }) }, "Walk the pairs that it uses, or that fail, now"));
  if (!asked) {
    const text = open.length ? plural(open.length, "incident is open", "incidents are open") : "No incident is open; whether the network was well has not been asked lately";
    return h("section", { class: "verdict", "aria-labelledby": "verdict" }, h("h2", { id: "verdict" }, "Is it the network?"), h("p", { class: "lead" }, badge(open.length ? "confirmed" : "unknown", text)),
      open.length ? null : h("p", { class: "quiet" }, "No incident is not the same as innocent: ", h("code", {}, `netagent-analyzer innocent ${id}`), " looks at all that was measured."), more);
  }
  const since = open.filter((each) => each.detected_ns > asked.at_ns).length;
  const [kind, text] = VERDICTS[asked.verdict] ?? ["unknown", asked.verdict];
  return h("section", { class: "verdict", "aria-labelledby": "verdict" }, h("h2", { id: "verdict" }, "Is it the network?"), h("p", { class: "lead" }, badge(kind, text), " asked at ", time(asked.at_ns)),
    since ? h("p", {}, badge("confirmed", `${plural(since, "incident")} since then`), " that answer does not know of") : null,
    list("Looked at", asked.looked_at), list("Against it", asked.against), list("Not looked at", asked.not_looked_at), more);
}

const VERDICTS = {
  innocent: ["well", "The network was innocent"],
  "not innocent": ["confirmed", "The network was not innocent"],
  "cannot tell": ["unknown", "Cannot tell whether it was the network"],
};

function list(title, items) {
  if (!items?.length) return null;
  return h("div", {}, h("h3", {}, title), h("ul", {}, items.map((each) => h("li", {}, name(typeof each === "string" ? each : measure("", each))))));
}

function skeleton(found) {
  if (!found) return none("It has not been looked at yet: all pairs of a rail are probed.");
  const sizes = Object.entries(KINDS).filter(([key]) => found[key] !== null && found[key] !== undefined)
    .map(([key, text]) => [text, number(found[key])]);
  const groups = Object.entries(found.groups ?? {});
  return [
    facts([["sure", share(found.confidence)], ...sizes, ["period", found.period_s ? span(found.period_s) : "–"],
      ["pairs", count(found.pairs)], found.reason ? ["why", name(found.reason)] : null]),
    groups.map(([kind, list]) => h("details", { "data-key": `group ${kind}` },
      h("summary", {}, `${KINDS[kind.toLowerCase()] ?? kind}: ${plural(list.length, "group")}`),
      h("ol", { class: "groups" }, list.slice(0, 64).map((group) => h("li", {}, group.map((each, n) => [n ? " · " : "", name(each)])))))),
    found.groups_omitted ? h("p", { class: "note-line" }, `${plural(found.groups_omitted, "group is", "groups are")} left out.`) : null,
  ];
}

