// SPDX-License-Identifier: Apache-2.0
// One task: is it the network?

import { path, post } from "./api.js";
import { h, replace } from "./dom.js";
import { heat } from "./heat.js";
import { open } from "./matrix.js";
import { badge, choice, facts, failure, icon, incidents, name, none, section, series, some, spread, to } from "./parts.js";
import { count, label, measure, number, plural, share, span, time } from "./words.js";

export const title = (id) => `Task ${id}`;
export const source = (id) => path(`task/${encodeURIComponent(id)}`);
export const every = 6;

const KINDS = { dp: "data parallel", pp: "pipeline", tp: "tensor parallel", ep: "expert parallel" };
const SHOWN = new Set(["id", "skeleton", "matrix", "series", "incidents", "inquiry", "may_inquire", "rhythm", "missing", "list", "at_ns"]);

export function view(data, { id, query, go, say }) {
  const show = query.show === "delay" ? "delay" : "loss";
  return [
    h("h1", {}, "Task ", name(data.id ?? id)),
    innocence(data, id, say),
    section("Incidents", "incidents", data.incidents.length
      ? incidents(data.incidents, "Incidents that this task was part of") : none("None that is kept.")),
    (data.missing ?? []).length ? section("Missing", "missing", h("p", {}, icon("silent"), " ",
      some(data.missing.map((each) => [name(each.container), " declared ", time(each.declared_ns)]), 10))) : null,
    section("The last hour", "series", series("Probes of this task by minute", data.series ?? [], spread(data.series ?? [], 4, [[3, "mean round trip"]]), "task")),
    section("Between its ends", "matrix", data.matrix ? [
      h("div", { class: "controls" }, choice("Show", [["loss", "Loss"], ["delay", "Delay"]], show,
        (chosen) => go(`${to.task(id)}?show=${chosen}`))),
      heat(data.matrix, `Probes by ${data.matrix.by}`, show, (row, col) => open(data.matrix, row, col, show)),
    ] : none("Nothing is known of it yet.")),
    section("What it is", "declared", facts(declared(data))),
    section("Its rhythm", "rhythm", rhythm(data.rhythm)),
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

const MINUTES = [5, 10, 30, 60];
const asking = new Map(); // task -> what became of asking: {minutes, error}; no error so far
let latest = null; // what is shown

function innocence(data, id, say) {
  latest = data;
  return h("section", { class: "verdict", id: "innocence", "aria-labelledby": "verdict" }, answered(data, id, say));
}

function answered(data, id, say) {
  const asked = data.inquiry;
  const open = data.incidents.filter((each) => !each.recovered_ns);
  const [kind, text] = asked ? VERDICTS[asked.verdict] ?? ["unknown", asked.verdict]
    : open.length ? ["confirmed", null]
    : ["unknown", "No incident is active; whether the network was well has not been asked lately"];
  const since = asked ? open.filter((each) => each.detected_ns > asked.at_ns) : open;
  return [
    h("h2", { id: "verdict" }, "Is it the network?"),
    since.length ? h("p", { class: "lead" }, badge("confirmed", plural(since.length, "incident is active", "incidents are active")), ": ", named(since),
      asked ? ", of which the answer below does not know" : "") : null,
    text === null ? null : h("p", { class: since.length ? "" : "lead" }, badge(since.length ? "unknown" : kind, text), asked ? [" asked at ", time(asked.at_ns), ", of ", time(asked.since_ns), " to ", time(asked.until_ns)] : null),
    asked ? [list("Looked at", asked.looked_at), list("Against it", asked.against), list("Not looked at", asked.not_looked_at)]
      : open.length ? null : h("p", { class: "quiet" }, "No incident is not the same as innocent: ", h("code", {}, `netagent-analyzer innocent ${id}`), " looks at all that was measured."),
    data.may_inquire ? ask(id, say) : null,
    h("p", {}, h("a", { href: to.diagnose({ task: id }) }, "Walk the pairs that it uses, or that fail, now")),
  ];
}

const named = (given) => some(given.map((each) => h("a", { href: to.incident(each.id) }, name(each.component ?? "not known: insufficient evidence"))), 3);

function ask(id, say) {
  const state = asking.get(id);
  const isBusy = state !== undefined && !state.error;
  const minutes = h("select", { id: "minutes", name: "minutes", disabled: isBusy }, MINUTES.map((each) =>
    h("option", { value: each, selected: each === (state?.minutes ?? 30) }, `${each} minutes`)));
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    const given = { minutes: Number(minutes.value) };
    const tell = (become, text) => {
      if (become) asking.set(id, become);
      else asking.delete(id);
      const place = document.getElementById("innocence");
      if (place && latest.id === id) replace(place, answered(latest, id, say));
      say(text);
    };
    tell(given, "Looking at all that was measured.");
    try {
      const found = await post(`/v1/tasks/${encodeURIComponent(id)}/inquiry`, given);
      if (latest.id === id) latest.inquiry = found;
      tell(null, (VERDICTS[found.verdict] ?? ["", found.verdict])[1]);
    } catch (error) {
      tell({ ...given, error }, "It was not answered.");
    }
  };
  return [
    h("form", { class: "fields", onsubmit: submit, "aria-label": "Ask whether the network was innocent" },
      h("div", {}, h("label", { for: "minutes" }, "Was the network innocent in the last"), minutes),
      h("button", { id: "inquire", disabled: isBusy }, isBusy ? "Looking…" : "Ask")),
    state?.error ? failure(state.error) : null,
  ];
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

function rhythm(found) {
  if (!found) return none("Its traffic has shown no iterations so far.");
  return facts([["one iteration", span(found.period_s)], ["confidence", share(found.confidence)], ["since", time(found.since_ns, true)]]);
}

function skeleton(found) {
  if (!found) return none("It has not been looked at yet: all pairs of a rail are probed.");
  const sizes = Object.entries(KINDS).filter(([key]) => found[key] !== null && found[key] !== undefined)
    .map(([key, text]) => [text, number(found[key])]);
  const groups = Object.entries(found.groups ?? {});
  return [
    facts([["confidence", share(found.confidence)], ...sizes, ["pairs", count(found.pairs)], found.reason ? ["why", name(found.reason)] : null]),
    groups.map(([kind, list]) => h("details", { "data-key": `group ${kind}` },
      h("summary", {}, `${KINDS[kind.toLowerCase()] ?? kind}: ${plural(list.length, "group")}`),
      h("ol", { class: "groups" }, list.slice(0, 64).map((group) => h("li", {}, group.map((each, n) => [n ? " · " : "", name(each)])))))),
    found.groups_omitted ? h("p", { class: "note-line" }, `${plural(found.groups_omitted, "group is", "groups are")} left out.`) : null,
  ];
}

