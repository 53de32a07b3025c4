// SPDX-License-Identifier: Apache-2.0
// One incident: what, since when, how it is known, what else it might be, and how to look for oneself.

import { path } from "./api.js";
import { h } from "./dom.js";
import { badge, copied, facts, icon, link, name, none, section, some, step, table, to } from "./parts.js";
import { bytes, count, loss, number, rtt, share, span, time } from "./words.js";

export const title = (id) => `Incident ${id}`;
export const source = (id) => path(`incident/${encodeURIComponent(id)}`);
export const every = 3;

const SYMPTOMS = {
  unconnectivity: "nothing comes through", loss: "probes are lost", latency: "probes take long",
  silence: "a host's agent says nothing", delay: "a host takes long to send or answer",
  masked: "nothing is lost, but a part is not what it should be", missing: "a container never came",
};

export function view(data, { id, say }) {
  const component = data.component ?? null;
  return [
    h("h1", {}, component === null ? "Insufficient evidence" : name(component)),
    h("p", { class: "lead" }, badge(data.state), " ", name(data.summary, "sentence")),
    data.unobserved_ns ? h("p", { class: "note" }, icon("silent"), " Nothing is measured of it since ", time(data.unobserved_ns, true), ": whether it recovered nobody can tell.") : null,
    data.stored === false ? h("p", { class: "note" }, icon("silent"), " Not on the analyzer's disk: a restart would not know it.") : null,
    data.late_ns ? h("p", { class: "note" }, icon("unknown"), ` Judged ${span(data.late_ns / 1e9)} late.`) : null,
    facts([
      ["symptom", `${SYMPTOMS[data.symptom] ?? data.symptom}`],
      ["layer", data.layer ?? "–"],
      component === null ? null : ["confidence", [share(data.confidence), h("span", { class: "quiet" }, " how sure the evidence makes it, not how often such verdicts were right")]],
      ["detected", time(data.detected_ns, true)],
      data.localized_ns ? ["located after", span((data.localized_ns - data.detected_ns) / 1e9)] : null,
      ["recovered", data.recovered_ns ? time(data.recovered_ns, true) : "not yet"],
      ["tasks", data.tasks?.length ? some(data.tasks.map((task) => link(to.task(task), task)), 8) : "no pair of a task fails"],
      !data.tasks?.length && data.hit?.length ? ["who has endpoints there", some(data.hit.map((each) => [link(to.task(each.task), each.task), ` (${count(each.endpoints)})`]), 8)] : null,
      ["incident", name(data.id ?? id)],
    ]),
    data.runbook ? h("p", {}, "Runbook: ", h("a", { href: data.runbook.href }, name(data.runbook.title))) : null,
    section("Evidence", "evidence", evidence(data.evidence ?? [], data.walks?.length || data.traces?.length), list("Missing: this would have settled it", data.missing), list("Beside it", data.remarks)),
    section("Packets, hop by hop", "walks", walks(data.walks ?? [], say)),
    data.traces?.length ? section("Traced in the kernel", "traces", traces(data.traces, say)) : null,
    section("Failing beside healthy", "pairs", pairs(data)),
    section("What else it might be", "alternatives", alternatives(data)),
    section("Timeline", "timeline", timeline(data)),
    section("Look for yourself", "commands", commands(data, say)),
    data.actions?.length ? section("What could be done", "actions", h("ul", {}, data.actions.map((each) =>
      h("li", {}, [name([each.verb, each.host, each.object].filter(Boolean).join(" ")), ": ", name(each.why), each.problem ? h("p", { class: "note-line" }, name(each.problem)) : null,
        each.command ? copied(each.command, each.verb, say) : null])))) : null,
  ];
}

function list(title, items) {
  if (!items?.length) return null;
  return [h("h3", {}, title), h("ul", {}, items.map((each) => h("li", {}, name(each))))];
}

function evidence(items, apart) {
  if (!items.length) return none(apart ? "What its packets met, below." : "None is kept of it.");
  const made = [];
  for (const text of items) {
    // What stands deeper belongs to what stands before it.
    if (/^\s/.test(text) && made.length) made[made.length - 1].append(h("div", { class: "more" }, sentence(text.trim())));
    else made.push(h("li", {}, sentence(text)));
  }
  return h("ol", { class: "evidence" }, made);
}

// What is quoted stands on lines of its own.
function sentence(text) {
  const lines = String(text).split("\n");
  return lines.length > 1 ? [name(lines[0]), h("pre", {}, lines.slice(1).join("\n"))] : name(text);
}

const ENDS = { forwarded: "well", delivered: "well", dropped: "bad", refused: "open", unknown: "unknown" };

export function action(said) {
  return badge(ENDS[said] === "well" ? "well" : ENDS[said] === "open" ? "open" : ENDS[said] === "unknown" ? "unknown" : "confirmed", said);
}

function walks(items, say) {
  if (!items.length) return none("None was made: what is at fault was found without flow tables.");
  return items.map((walk, n) => h("details", { "data-key": `walk ${walk.source} ${walk.target}`, open: n === 0 },
    h("summary", {}, name(walk.source), " → ", name(walk.target)),
    walk.text ? h("p", {}, name(walk.text)) : null,
    h("ol", { class: "hops" }, (walk.hops ?? []).map(step_of)),
    walk.command ? repeats([{ text: "Walk it again, now", command: walk.command }], say) : null));
}

// Of what an older analyzer kept only what was read is kept, and not which component they are.
function step_of(hop) {
  const quote = hop.quote ?? [];
  const bare = hop.component === null && quote.length > 0;
  return h("li", {},
    h("div", { class: "hop" }, hop.action ? [action(hop.action), " "] : null, name(bare ? quote[0] : hop.component),
      hop.host ? h("span", { class: "quiet" }, " on ", link(to.host(hop.host), hop.host)) : null,
      hop.layer && !bare ? h("span", { class: "quiet" }, ` · ${hop.layer}`) : null),
    quote.length > (bare ? 1 : 0) ? h("pre", {}, quote.slice(bare ? 1 : 0).join("\n")) : null);
}

function traces(items, say) {
  return items.map((each) => {
    const timed = each.stages.some((stage) => stage.p50_ns !== null);
    return h("details", { "data-key": `trace ${each.source} ${each.target}`, open: true },
      h("summary", {}, name(each.source), " → ", name(each.target)),
      h("p", {}, name(each.text)),
      each.stages.length ? table("Packets by stage", [
        ["Stage", (stage) => name(stage.stage)],
        ["Host", (stage) => [`${stage.end} `, stage.host ? link(to.host(stage.host), stage.host) : null]],
        ["Packets", (stage) => count(stage.packets), "num"],
        ["Median time since the stage before", (stage) => rtt(stage.p50_ns), "num"],
      ], each.stages) : h("ul", {}, each.lines.map((line) => h("li", {}, name(line)))),
      each.stages.length && !timed ? h("p", { class: "note-line" }, "Packets were counted and not timed: a trace of latency does that.") : null,
      repeats(each.commands, say));
  });
}

function repeats(commands, say) {
  return commands?.length ? h("ul", { class: "commands" }, commands.map((each) =>
    h("li", {}, h("span", {}, name(each.text)), copied(each.command, each.text, say)))) : null;
}

function pairs(data) {
  const columns = [
    ["From", (pair) => h("a", { href: to.pair(pair.source, pair.target) }, name(pair.source))],
    ["To", (pair) => name(pair.target)],
    ["Lost", (pair) => h("span", { class: `chip ${step(pair.sent, pair.lost)}` }, loss(pair.sent, pair.lost)), "num"],
    ["Probes", (pair) => `${count(pair.lost)} of ${count(pair.sent)}`, "num"],
  ];
  const left = data.omitted ?? {};
  const one = (caption, rows, otherwise, omitted) => h("div", {}, rows?.length ? [table(caption, columns, rows, { most: 32 }),
    omitted ? h("p", { class: "note-line" }, `${count(omitted)} more are left out.`) : null] : [h("h3", {}, caption), none(otherwise)]);
  return h("div", { class: "beside" },
    one("Failing", data.failing, "No pair: it is about no path.", left.failing),
    one("Healthy, close by", data.healthy, "None was compared.", left.healthy));
}

function alternatives(data) {
  const found = data.alternatives ?? [];
  return [
    found.length ? table("Other components, by how much of the losses they explain", [
      ["Component", (each) => name(each.component)],
      ["Layer", (each) => each.layer ?? "–"],
      ["Score", (each) => number(each.score), "num"],
      ["Lost of those that cross it", (each) => `${count(each.lost)} of ${count(each.crossed)}`, "num"],
    ], found) : none("No other component explains it."),
    list("What would decide", data.decide),
  ];
}

function timeline(data) {
  const rows = [...(data.timeline ?? [])].sort((a, b) => a.at_ns - b.at_ns);
  const first = rows[0]?.at_ns;
  return [
    rows.length ? h("ol", { class: "timeline" }, rows.map((each) => h("li", {}, time(each.at_ns, true),
      h("span", { class: "quiet" }, ` +${span((each.at_ns - first) / 1e9)} `), name(each.what)))) : none("Nothing is kept of it."),
    list("Notes", data.notes),
  ];
}

function commands(data, say) {
  const all = [...(data.commands ?? [])];
  if (data.recording?.command) all.push({ text: "Replay what the diagnosis was given", command: data.recording.command });
  if (!all.length) return none("There is no command for it.");
  return [repeats(all, say), data.recording?.href ? h("p", {}, h("a", { href: data.recording.href, download: `${data.id}.recording` },
    `The recording of what the diagnosis was given (${bytes(data.recording.bytes)})`)) : null];
}

