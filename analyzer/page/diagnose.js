// SPDX-License-Identifier: Apache-2.0
// What becomes of packets between two ends now; or between all pairs of a task, as the answers come.

import { get, path, post } from "./api.js";
import { h, replace } from "./dom.js";
import { action } from "./incident.js";
import { badge, failure, icon, link, name, none, section, table, to } from "./parts.js";
import { count, plural } from "./words.js";

export const title = () => "Diagnose";
export const source = () => null;
export const every = 0;

export function view(_, { query, go, say, signal }) {
  const answer = h("div", { id: "answer", tabindex: -1 });
  const [source, target] = [field("source", "From", query.source), field("target", "To", query.target)];
  const task = h("input", { id: "task", name: "task", value: query.task ?? "", maxlength: 300, autocomplete: "off", spellcheck: "false" });
  const pair = (event) => {
    event.preventDefault();
    const asked = { source: source.value.trim(), target: target.value.trim() };
    if (!asked.source || !asked.target) {
      (asked.source ? target : source).focus();
      say("Both ends are needed.");
      return;
    }
    go(to.diagnose(asked), true);
    one(answer, asked, say, signal);
  };
  const whole = (event) => {
    event.preventDefault();
    if (!task.value.trim()) return;
    go(to.diagnose({ task: task.value.trim() }), true);
    many(answer, task.value.trim(), say, signal);
  };
  if (query.source && query.target) one(answer, { source: query.source, target: query.target }, say, signal);
  else if (query.task) many(answer, query.task, say, signal);
  return [
    h("h1", {}, "Diagnose"),
    h("p", { class: "lead-quiet" }, "Where would a packet go now? Both hosts' flow tables are walked, and what probes say of the fabric stands beside. It changes nothing."),
    h("form", { class: "fields", onsubmit: pair, "aria-label": "Two ends" },
      labelled(source, "From (container/rail)", signal), labelled(target, "To (container/rail)", signal), h("button", { class: "main" }, "Diagnose")),
    h("form", { class: "fields", onsubmit: whole, "aria-label": "A task" },
      h("div", {}, h("label", { for: "task" }, "Or the pairs that a task uses, or that fail"), task), h("button", {}, "Diagnose the task")),
    answer,
  ];
}

function field(id, label, value) {
  return h("input", { id, name: id, list: `${id}-list`, value: value ?? "", maxlength: 300, required: true, autocomplete: "off", spellcheck: "false", placeholder: "train-a-0/rail0" });
}

function labelled(input, text, signal) {
  const list = h("datalist", { id: `${input.id}-list` });
  let asked = null;
  const complete = async () => {
    const q = input.value.trim();
    if (asked === q) return;
    asked = q;
    try {
      const found = await get(path("endpoints", { q }), signal);
      if (asked !== q) return;
      list.replaceChildren(...found.endpoints.slice(0, 50).map((each) =>
        h("option", { value: each.id }, [each.task, each.host].filter(Boolean).join(", "))));
    } catch {
      // Completion only helps: whatever is typed is asked for.
    }
  };
  input.addEventListener("input", complete);
  input.addEventListener("focus", complete);
  return h("div", {}, h("label", { for: input.id }, text), input, list);
}

function waiting(answer, text) {
  const began = Date.now();
  const shown = h("span", {}, "0 s");
  const timer = setInterval(() => {
    if (!answer.isConnected && Date.now() - began > 1_000) clearInterval(timer);
    shown.textContent = `${Math.round((Date.now() - began) / 1_000)} s`;
  }, 1_000);
  replace(answer, h("p", { class: "quiet" }, text, " ", shown));
  return () => clearInterval(timer);
}

async function one(answer, asked, say, signal) {
  const done = waiting(answer, `Asking both hosts of ${asked.source} and ${asked.target} …`);
  try {
    const found = await post("/v1/diagnose", asked, signal);
    replace(answer, told(found, true));
    say(`Answer: ${found.outcome}. ${found.text}`);
  } catch (error) {
    if (error.name !== "AbortError") replace(answer, failure(error));
  } finally {
    done();
  }
}

const GOOD = new Set(["delivered"]);

function outcome(said) {
  if (GOOD.has(said)) return badge("well", said);
  if (said === "cannot_tell") return badge("unknown", "cannot tell");
  return badge(said === "refused" ? "open" : "confirmed", String(said).replaceAll("_", " "));
}

function told(found, hasTree) {
  const seen = found.observations ?? [];
  const ways = [["there", "The way there"], ["back", "The way back"]].filter(([way]) => seen.some((each) => each.way === way));
  return section("Answer", "outcome",
    h("p", { class: "lead" }, outcome(found.outcome), " ", name(found.text, "sentence")),
    h("p", {}, h("a", { href: to.pair(found.source, found.target) }, name(found.source), " → ", name(found.target)),
      found.component ? [" · at fault: ", name(found.component)] : null),
    ways.map(([way, text]) => table(text, [
      ["Hop", (each) => name(each.component)],
      ["What became of it", (each) => action(each.action)],
      ["Known by", (each) => [name(each.text), each.by ? [" · wanted by ", name(each.by)] : null, each.cookie ? h("span", { class: "quiet" }, " cookie ", name(each.cookie)) : null], "wide"],
      ["Host", (each) => (each.host ? link(to.host(each.host), each.host) : "fabric")],
      ["Incident", (each) => (each.incident ? link(to.incident(each.incident), each.incident) : "–")],
    ], seen.filter((each) => each.way === way))),
    hasTree && found.tree?.length ? [h("h3", {}, "What each table did"), h("div", { class: "tree" }, tree(found.tree, 0))] : null,
    h("details", { "data-key": "json" }, h("summary", {}, "This answer as JSON"), h("pre", {}, JSON.stringify(found, null, 1))));
}

function tree(nodes, depth) {
  return h("ul", {}, nodes.map((each) => h("li", {}, each.children?.length
    ? h("details", { open: depth < 1 }, h("summary", {}, name(each.text)), tree(each.children, depth + 1))
    : name(each.text))));
}

async function many(answer, task, say, signal) {
  let done = waiting(answer, `Asking the hosts of ${task} …`);
  const results = [];
  try {
    let state = await post("/v1/diagnose", { task }, signal);
    for (;;) {
      results.push(...state.results);
      done();
      replace(answer, progress(state, results));
      if (state.phase !== "running") break;
      const query = new URLSearchParams({ after: state.next, wait_s: 30 });
      state = await get(`/v1/diagnoses/${encodeURIComponent(state.id)}?${query}`, signal);
    }
    say(`${plural(results.length, "pair")} walked.`);
  } catch (error) {
    if (error.name !== "AbortError") replace(answer, failure(error), results.length ? rows(results) : null);
  } finally {
    done();
  }
}

function progress(state, results) {
  const bad = results.filter((each) => !GOOD.has(each.outcome));
  const became = bad.length ? `${count(bad.length)} not delivered` : results.length ? "all delivered" : "";
  return section("Answer", "outcome",
    h("p", { class: "lead" }, state.phase === "failed" ? [icon("bad"), " ", name(state.error)] :
      `${count(state.done)} of ${plural(state.all, "pair")} walked${state.phase === "running" ? " …" : ""}${became && `; ${became}`}.`),
    state.left_out ? h("p", { class: "note-line" }, `${plural(state.left_out, "pair is", "pairs are")} left out.`) : null,
    rows(results));
}

function rows(results) {
  if (!results.length) return none("The first answers take some seconds.");
  const sorted = [...results].sort((a, b) => GOOD.has(a.outcome) - GOOD.has(b.outcome));
  return table("Pairs that the task uses or that fail, those that do not get through first", [
    ["From", (each) => h("a", { href: to.diagnose({ source: each.source, target: each.target }) }, name(each.source))],
    ["To", (each) => name(each.target)],
    ["Outcome", (each) => outcome(each.outcome)],
    ["At fault", (each) => name(each.component)],
    ["Why", (each) => name(each.text), "wide"],
  ], sorted, { most: 256 });
}
