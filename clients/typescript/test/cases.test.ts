/** The client passes the cases that all clients share, `clients/cases.json`. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { optionFields } from "../src/ai.js";
import { attemptLimitMs, firstTokenLimitMs, hasEffects, HedgeBudget, order, planHedge } from "../src/attempts.js";
import { CollectorClock } from "../src/clock.js";
import { Cooldowns, retryAfterMs } from "../src/cooldowns.js";
import { readTable, TableError, type RouteTable } from "../src/documents.js";
import { Effectiveness, followed } from "../src/effectiveness.js";
import { FirstContent, type Progress } from "../src/firstContent.js";
import { FollowedTables, TableCursor } from "../src/tables.js";

/** The cases are data; a field that is missing has the default of its use. */
type Case = any;

const PATH = new URL("../../../cases.json", import.meta.url);
const CASES: Record<string, Case[]> = JSON.parse(readFileSync(PATH, "utf8"));
const NOW = Date.parse("2026-11-21T08:00:00Z");

function cases(subject: string, check: (one: Case, t: TestContext) => void): void {
  const found = CASES[subject] ?? assert.fail(`no cases of ${subject}`);
  for (const one of found) test(`${subject}: ${one.law}`, (t) => check(one, t));
}

function instant(seconds: number): string {
  return new Date(NOW + seconds * 1000).toISOString();
}

/** A table of a case as the JSON of a collector. */
function documentOf({ weights, generation = 1, built = 0, stale = 100, ...more }: Case): Case {
  return {
    schema: "isochrone.routes/1",
    generation,
    etag: `g${generation}`,
    client_region: "us-east-2",
    route: "chat",
    built_at: instant(built),
    fresh_until_at: instant(more.fresh ?? stale),
    stale_until_at: instant(stale),
    state: more.state ?? "ok",
    entries: Object.entries(weights).map(([name, weight], place) => ({
      rank: place + 1,
      weight,
      target: name,
      provider: name,
      model: `model-${name}`,
      dialect: "openai-chat",
      base_url: `https://${name}.example/v1`,
      credential_ref: null,
      hedge: null,
    })),
    static_order: more.static_order ?? [],
    unassigned: more.unassigned ?? 0,
    move_within_us: Math.round((more.move_within ?? 0) * 1e6),
  };
}

function tableOf(fields: Case): RouteTable {
  return readTable(JSON.stringify(documentOf(fields)));
}

cases("order", (one) => {
  const found = order(documentOf({ weights: one.weights }).entries, {
    unassigned: one.unassigned ?? 0,
    draw: one.draw,
    throttled: new Set(one.throttled),
    failing: new Set(one.failing),
  });
  assert.deepEqual(
    found.map((entry) => entry.target),
    one.order,
  );
});

cases("tables", (one) => {
  const tables = new FollowedTables(one.share);
  for (const step of one.steps) {
    if (step.receive) {
      tables.receive(tableOf(step.receive));
      continue;
    }
    if (step.planned) {
      tables.forgetRemoved(new Set(step.planned), NOW + step.at * 1000);
      continue;
    }
    const found = tables.at("chat", NOW + step.at * 1000);
    assert.equal(found?.generation ?? null, step.generation);
    const weights = found?.entries.map((entry) => [entry.target, entry.weight]);
    assert.deepEqual(weights, step.weights && Object.entries(step.weights));
    assert.equal(found?.state === "insufficient_data", step.is_static ?? false);
  }
});

cases("newer", (one) => {
  const cursor = new TableCursor();
  for (const [generation, built] of one.seen) cursor.advance(tableOf({ weights: { a: 1 }, generation, built }));
  const [generation, built] = one.table;
  assert.equal(cursor.compare(tableOf({ weights: { a: 1 }, generation, built })), one.relation);
});

cases("hedge", (one) => {
  const weights = Object.fromEntries(one.order.map((name: string, place: number) => [name, place === 0 ? 1 : 0]));
  const plain = documentOf({ weights, state: one.state });
  plain.entries[0].hedge = one.published;
  const table = readTable(JSON.stringify(plain));
  const found = planHedge(table, table.entries, {
    isStreamed: one.is_streamed ?? true,
    hasEffects: one.has_effects ?? false,
    allowEffects: one.allow_effects ?? false,
  });
  const shown = typeof found === "string" ? found : { delay_us: found.delay_us, target: found.entry.target };
  assert.deepEqual(shown, one.refused ?? one.hedge);
});

cases("effective", (one) => {
  const [noted, reported] = [new Effectiveness(), [] as number[]];
  let requests = 0;
  for (const { times, weights, usable, resting = [] } of one.steps) {
    const { entries } = documentOf({ weights });
    for (let time = 0; time < times; time += 1) {
      requests += 1;
      const share = followed(entries, new Set(usable), new Set(resting));
      if (share !== undefined && noted.add(share)) reported.push(requests);
    }
  }
  assert.equal(noted.share === undefined ? null : Math.round(1000 * noted.share) / 1000, one.share);
  assert.deepEqual(reported, one.reported);
});

cases("effects", (one) => {
  const { dialect = "openai-chat", document, has_effects } = one;
  assert.equal(hasEffects(dialect, document), has_effects);
  // In the AI SDK, what is neither a tool nor the choice of one is an option of a provider, in camel case.
  const { tools = [], functions = [], tool_choice, ...fields } = document;
  const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  const own = Object.fromEntries(Object.entries(fields).map(([name, value]) => [camel(name), value]));
  const toolChoice = typeof tool_choice === "string" ? { type: tool_choice } : tool_choice;
  const options: Case = { tools: [...tools, ...functions], toolChoice, providerOptions: { openai: own } };
  assert.equal(hasEffects(dialect, optionFields(options)), has_effects);
});

cases("limits", (one) => {
  const { entry, is_streamed: isStreamed = true, body_bytes: bodyBytes, max_tokens: maxTokens, left, is_last } = one;
  const firstToken = firstTokenLimitMs(entry, { isStreamed, bodyBytes, maxTokens });
  const found = attemptLimitMs(firstToken, (left ?? Infinity) * 1000, is_last ?? false);
  assert.equal(found, (one.seconds ?? Infinity) * 1000);
});

cases("clock", (one, t) => {
  let [wall, steady, suspended] = [0, 0, 0];
  t.mock.method(Date, "now", () => NOW + wall * 1000);
  // As on platforms whose steady clock stops while the machine is suspended.
  t.mock.method(performance, "now", () => steady * 1000);
  t.mock.method(os, "uptime", () => steady + suspended);
  const clock = new CollectorClock();
  for (const step of one.steps) {
    ({ wall, steady, suspended = 0 } = step);
    if (step.date) clock.set(step.date);
    else assert.equal(clock.now(), NOW + step.now * 1000);
  }
});

cases("first_content", ({ dialect }) => {
  const folder = join(process.env["ISOCHRONE_TEST_WIRE"] ?? "", dialect);
  for (const name of readdirSync(folder)) {
    const { status, headers, frames, expected }: Case = JSON.parse(readFileSync(join(folder, name), "utf8"));
    if (status !== 200 || /\/(json|html)$/.test(headers["content-type"])) continue;
    const bytes = Buffer.concat(frames.map(([, data]: Case) => Buffer.from(data.base64 ?? data, data.base64 && "base64")));
    for (const size of [bytes.length, 1]) {
      const [finder, decoder] = [new FirstContent(dialect), new TextDecoder()];
      let progress: Progress = "waiting";
      for (let begin = 0; begin < bytes.length && progress === "waiting"; begin += size)
        progress = finder.receive(decoder.decode(bytes.subarray(begin, begin + size), { stream: true }));
      if (progress === "waiting") progress = finder.end();
      assert.equal(progress === "content" ? "content" : "failed", expected.client, `${name} by ${size} bytes`);
    }
  }
});

cases("budget", (one) => {
  const budget = new HedgeBudget(one.ratio, one.burst);
  const granted = [...one.asks].map((ask) => (ask === "r" ? (budget.addRequest(), ".") : budget.take() ? "y" : "n"));
  assert.equal(granted.join(""), one.granted);
});

cases("cooldowns", (one) => {
  const cooldowns = new Cooldowns();
  for (const { at, throttle, retry_after, fail, succeed, times = 1, ...step } of one.steps) {
    for (let count = 0; count < times; count += 1) {
      if (throttle) cooldowns.throttle(throttle, retry_after && retry_after * 1000, at * 1000, step.draw ?? 0);
      if (fail) cooldowns.fail(fail, at * 1000, step.draw ?? 0);
      if (succeed) cooldowns.succeed(succeed);
    }
    const left = [...cooldowns.throttled(at * 1000)].map(([target, ms]) => [target, ms / 1000]);
    if (step.throttled) assert.deepEqual(Object.fromEntries(left), step.throttled);
    if (step.failing) assert.deepEqual([...cooldowns.failing(at * 1000).keys()], step.failing);
  }
});

cases("retry_after", (one) => {
  assert.equal(retryAfterMs(one.headers) ?? null, one.seconds === null ? null : one.seconds * 1000);
});

cases("garbage", (one) => {
  const plain = documentOf({ weights: one.weights ?? { a: 1, b: 0 } });
  if (!one.weights) readTable(JSON.stringify(plain));
  Object.assign(plain, one.change);
  delete plain[one.remove];
  Object.assign(plain.entries[0] ?? {}, one.entry);
  assert.throws(() => readTable(one.text ?? JSON.stringify(plain)), TableError);
});
