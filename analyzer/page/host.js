// SPDX-License-Identifier: Apache-2.0
// One host: is it heard, what does it measure, and what does it cost.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, facts, incidents, link, name, none, section, table, to } from "./parts.js";
import { label, measure, number, plural, span } from "./words.js";

export const title = (id) => `Host ${id}`;
export const source = (id) => path(`host/${encodeURIComponent(id)}`);
export const every = 3;

export function view(data, { id }) {
  const silent = data.state === "silent";
  const open = data.incidents.filter((each) => !each.recovered_ns).length;
  return [
    h("h1", {}, "Host ", name(data.id ?? id)),
    h("p", { class: "lead" }, badge(data.state, silent ? undefined : "heard"), open ? [" ", badge("confirmed", plural(open, "incident is active", "incidents are active"))] : null, silent ? ` Nothing was heard of its agent for ${span(data.silent_ms / 1e3)}: what is below is what it said last.` : ""),
    facts([
      ["last heard", data.silent_ms === null || data.silent_ms === undefined ? "never" : `${span(data.silent_ms / 1e3)} ago`],
      ["agent", name(data.version)],
      ...flat(data.cost),
    ]),
    section("Incidents", "incidents", data.incidents.length ? incidents(data.incidents, "Incidents that this host is part of") : none("None that is kept.")),
    section("What it states itself", "findings", data.findings.length ? table("Findings of the host about its own parts", [
      ["Part", (each) => name(each.component)],
      ["What", (each) => name(each.text), "wide"],
      ["Kind", (each) => name(each.kind)],
    ], data.findings) : none("Nothing is wrong with its own parts, as far as it can see.")),
    section("RNICs", "rnics", data.rnics.length ? data.rnics.map(rnic) : none("It reports no counters of RDMA devices.")),
    section("Endpoints", "endpoints", data.endpoints.length ? table("Endpoints on this host", [
      ["Endpoint", (each) => name(typeof each === "string" ? each : each.id)],
      ["State", (each) => (each.state ? badge(each.state === "up" ? "well" : "silent", each.state) : "–")],
      ["Task", (each) => (each.task ? link(to.task(each.task), each.task) : "–")],
      ["Address", (each) => name(each.address)],
      ["RNIC", (each) => name(each.rnic)],
      ["MTU", (each) => each.mtu ?? "–", "num"],
    ], data.endpoints) : none("It has none.")),
    section("Its agent", "agent", h("div", { class: "beside" }, group("Health, in its newest window", data.health), group("Limits", data.limits))),
  ];
}

const flat = (values) => Object.entries(values ?? {}).map(([key, value]) => [label(key), name(measure(key, value))]);

function group(title, values) {
  const found = flat(values);
  return h("div", {}, h("h3", {}, title), found.length ? facts(found) : none("It has said nothing of this."));
}

function rnic(each) {
  const counters = Object.entries(each.counters ?? {});
  const moving = counters.filter(([, [, rate]]) => rate);
  return h("details", { "data-key": `rnic ${each.device}`, open: moving.length > 0 },
    h("summary", {}, name(each.device), " ", each.state ? h("span", { class: "quiet" }, each.state) : null,
      moving.length ? null : h("span", { class: "quiet" }, " · no counter moves")),
    counters.length ? table(`Counters of ${each.device}`, [
      ["Counter", ([key]) => name(key)],
      ["In the newest window", ([, [value]]) => number(value), "num"],
      ["Per second", ([, [, rate]]) => number(rate), "num"],
    ], counters.sort((a, b) => (b[1][1] ?? 0) - (a[1][1] ?? 0)), { quiet: true }) : none("Its counters were not read."));
}

