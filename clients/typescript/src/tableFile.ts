/**
 * The last tables on disk, so that a restarted service can route before it reaches a collector.
 *
 * The file has the name and the form of that of the Python client, with which it can be shared.
 */

import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { mkdir, open, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";

import { readEntry, readTable, type RouteEntry, type RouteTable } from "./documents.js";

const SCHEMA = "isochrone.routing/1";

/** Tables with their JSON as it was received, and members of earlier tables, which a static order may name. */
export interface KeptTables {
  readonly tables: ReadonlyMap<string, RouteTable>;
  readonly entries: readonly RouteEntry[];
}

/** The file for a collector and a region. */
export function pathOf(folder: string, url: string, region: string): string {
  const digest = createHash("sha256").update(`${url}\n${region}`).digest("hex").slice(0, 16);
  return join(folder, `tables-${digest}.json`);
}

/** Read what was kept; what cannot be read counts as nothing. */
export function load(path: string): KeptTables {
  try {
    const { tables, entries } = JSON.parse(readFileSync(path, "utf8")) as { tables: string[]; entries: unknown[] };
    return { tables: new Map(tables.map((text) => [text, readTable(text)])), entries: entries.map(readEntry) };
  } catch {
    return { tables: new Map(), entries: [] };
  }
}

/** Write the JSON of the tables, and the members; a reader sees the old file or the new one. Throws errors of files. */
export async function save(path: string, tables: Iterable<string>, entries: Iterable<RouteEntry>): Promise<void> {
  const document = { schema: SCHEMA, tables: [...tables], entries: [...entries] };
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const beside = `${path}.${randomBytes(4).toString("hex")}`;
  try {
    const file = await open(beside, "wx", 0o600);
    try {
      await file.writeFile(JSON.stringify(document));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(beside, path);
  } finally {
    await rm(beside, { force: true });
  }
}
