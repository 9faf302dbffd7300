/** How tables arrive, are kept and are handed out. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { Agent } from "node:https";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { eventsOf } from "../src/events.js";
import { Routes } from "../src/index.js";
import { ask, eventually, modelOf, PATIENCE_MS, TableServer, World } from "./world.js";

test("pick is for other programs, and leaves out what has failed for the request", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  assert.ok(await routes.wait());
  const picked = routes.pick("chat");
  assert.deepEqual([picked?.model, picked?.route, picked?.generation], ["fault-none", "chat", 1]);
  assert.equal(picked?.is_static, false);
  assert.equal(routes.pick("chat", { without: ["sim/none"] })?.model, "fault-crlf");
  assert.equal(routes.pick("chat", { without: ["sim/none", "sim/crlf"] }), undefined);
  assert.equal(routes.pick("unknown"), undefined);
});

test("watch yields the newest table of each route, then every newer one, until close", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  await routes.wait();
  const seen: number[] = [];
  for await (const table of routes.watch()) {
    seen.push(table.generation);
    if (table.generation === 1) world.firstThen("crlf", "none");
    else routes.close();
  }
  assert.deepEqual(seen, [1, 2]);
});

test("the first request waits for the tables, and for the one that comes second", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf", { route: "other" });
  world.firstThen("none", "crlf");
  assert.equal(await ask(modelOf(world.routes(undefined, { cacheFolder: null }))), "fault-none");
});

test("a restarted service has the last table, also without the collector", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const routes = world.routes();
  await routes.wait();
  const files = (): string[] => readdirSync(world.cacheFolder).filter((name) => name.endsWith(".json"));
  await eventually(() => files().length === 1, "the file");
  await world.server.stop();
  assert.equal(await ask(modelOf(world.routes())), "fault-none");
  const kept = join(world.cacheFolder, files()[0] ?? "");
  assert.equal(statSync(kept).mode & 0o777, 0o600);
  writeFileSync(kept, "garbage");
  await assert.rejects(ask(modelOf(world.routes())), /Cannot connect to API/);
});

test("a route that the plan no longer has is forgotten when its table expires, and others are not", async (t) => {
  const world = await World.of(t);
  world.server.planned = ["voice"];
  for (const route of ["chat", "voice"]) world.firstThen("none", "crlf", { route, seconds: -1 });
  world.firstThen("none", "crlf", { route: "lasting" });
  const routes = world.routes();
  await eventually(() => routes.table("lasting") !== undefined, "all tables");
  await eventually(() => routes.table("chat") === undefined, "the route is gone");
  assert.equal(routes.pick("voice")?.is_static, true);
  assert.equal(routes.pick("lasting")?.is_static, false);
});

test("an expired cache is written once when its route is gone, though the stream is refused", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf", { seconds: -1 });
  await world.routes().wait();
  const kept = (): string[] => readdirSync(world.cacheFolder).filter((name) => name.endsWith(".json"));
  await eventually(() => kept().length === 1, "the file");
  const path = join(world.cacheFolder, kept()[0] ?? "");
  await world.server.stop();
  [world.server.planned, world.server.refusal] = [["voice"], 403];
  await world.server.start();
  const before = readFileSync(path, "utf8");
  const routes = world.routes();
  await eventually(() => routes.table("chat") === undefined, "the route is gone");
  await eventually(() => readFileSync(path, "utf8") !== before, "the file without it");
  // Each time it is written, the file is another one.
  const { ino } = statSync(path);
  await sleep(200);
  assert.equal(statSync(path).ino, ino);
});

test("a jump of the machine's clock expires no table", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf", { static_order: ["sim/crlf", "sim/none"] });
  const routes = world.routes();
  await routes.wait();
  const { now } = Date;
  t.after(() => (Date.now = now));
  Date.now = () => now() + 3_600_000;
  assert.equal(routes.pick("chat")?.is_static, false);
});

test("a cache that cannot be written is no failure", async (t) => {
  const world = await World.of(t);
  const file = join(world.cacheFolder, "file");
  writeFileSync(file, "");
  world.firstThen("none", "crlf");
  const routes = world.routes(undefined, { cacheFolder: file });
  assert.equal(await ask(modelOf(routes)), "fault-none");
  await eventually(() => routes.counters["cache_failed"] === 1, "the count");
});

test("a stream resumes after the last generation, authenticated", async (t) => {
  const world = await World.of(t);
  world.firstThen("none", "crlf");
  const model = modelOf(world.routes(undefined, { token: "secret" }));
  assert.equal(await ask(model), "fault-none");
  await world.server.stop();
  world.firstThen("crlf", "none");
  await world.server.start();
  await eventually(async () => (await ask(model)) === "fault-crlf", "the table of the restarted collector");
  assert.deepEqual(
    world.server.requests.slice(0, 2).map((one) => one["last-event-id"]),
    [undefined, "1"],
  );
  assert.deepEqual(new Set(world.server.requests.map((one) => one.authorization)), new Set(["Bearer secret"]));
});

test("a lower generation that was built clearly later is of another database, a stale one is not", async (t) => {
  const world = await World.of(t);
  world.generation = 100;
  world.firstThen("none", "crlf");
  const model = modelOf(world.routes());
  assert.equal(await ask(model), "fault-none");
  await world.server.stop();
  world.server.published.length = 0;
  world.generation = 1;
  world.firstThen("crlf", "none");
  await world.server.start();
  await eventually(() => world.server.requests.length > 1, "the next stream");
  assert.equal(await ask(model), "fault-none");
  world.firstThen("crlf", "none", { built_at: new Date(Date.now() + 11_000).toISOString() });
  await eventually(async () => (await ask(model)) === "fault-crlf", "the table of the other database");
});

test("the collector's clock decides, not that of this machine", async (t) => {
  const world = await World.of(t);
  world.server.date = "Sat, 21 Nov 2020 08:00:00 GMT";
  const [built_at, stale_until_at] = ["2020-11-21T08:00:00Z", "2020-11-21T08:01:00Z"];
  const static_order = ["sim/crlf", "sim/none"];
  world.firstThen("none", "crlf", { built_at, fresh_until_at: built_at, stale_until_at, static_order });
  assert.equal(await ask(modelOf(world.routes())), "fault-none");
});

test("a collector with a self-signed certificate is trusted through the agent, and only so", async (t) => {
  const folder = process.env["ISOCHRONE_TEST_CERTIFICATE"] ?? assert.fail("no certificate");
  const [key, cert] = ["key.pem", "certificate.pem"].map((name) => readFileSync(join(folder, name))) as [
    Buffer,
    Buffer,
  ];
  const world = await World.of(t, new TableServer({ key, cert }));
  world.firstThen("none", "crlf");
  assert.ok(await world.routes(undefined, { agent: new Agent({ ca: cert }) }).wait(PATIENCE_MS));
  const distrustful = world.routes(undefined, { cacheFolder: null });
  distrustful.pick("chat");
  await eventually(() => (distrustful.counters["disconnected"] ?? 0) > 0, "the refusal");
  assert.equal(distrustful.pick("chat"), undefined);
});

test("a refusal of the collector is counted", async (t) => {
  const world = await World.of(t);
  const routes = world.routes("nowhere");
  assert.equal(routes.pick("chat"), undefined);
  await eventually(() => routes.counters["refused"] === 1, "the refusal");
});

test("an address that is no URL is refused at once", async () => {
  assert.throws(() => new Routes("isochrone.example:4680:1", "us-east-2"), TypeError);
});

for (const isUp of [true, false]) {
  test(`routes that are followed do not keep a program alive, with the collector up: ${isUp}`, async (t) => {
    const world = await World.of(t);
    world.firstThen("none", "crlf");
    if (!isUp) await world.server.stop();
    const program = `import { Routes } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
      const routes = new Routes(${JSON.stringify(world.server.url)}, "us-east-2", { cacheFolder: null });
      console.log(await routes.wait(${isUp ? PATIENCE_MS : 100}));`;
    const command = ["--input-type=module", "--eval", program];
    const { stdout } = await promisify(execFile)(process.execPath, command, { timeout: PATIENCE_MS });
    assert.equal(stdout, `${isUp}\n`);
  });
}

for (let cut = 0; cut < 30; cut += 1) {
  test(`events are the same wherever the reads end: ${cut}`, async () => {
    const bytes = new TextEncoder().encode("\uFEFFdata: ü\r\ndata\r\n\r\n: ping\rdata:b\r\revent: x\ndata: c");
    const found: string[] = [];
    for await (const one of eventsOf(inParts(bytes, cut))) found.push(one);
    assert.deepEqual(found, ["ü\n", "b"]);
  });
}

test("an event without end is refused", async () => {
  const endless = inParts(new TextEncoder().encode(`data: ${"x".repeat(1 << 21)}`), 100);
  await assert.rejects(eventsOf(endless).next(), RangeError);
});

async function* inParts(bytes: Uint8Array, cut: number): AsyncGenerator<Uint8Array> {
  yield bytes.subarray(0, cut);
  yield bytes.subarray(cut);
}
