// Gives every request to a Portkey gateway the config of the file that `isochrone routes export --output portkey --follow`
// keeps up to date. Requests that bring a config or a provider of their own are left alone.
//
//     ISOCHRONE_PORTKEY_CONFIG=portkey.json DEEPSEEK_API_KEY=… \
//       node --import ./isochrone.mjs node_modules/@portkey-ai/gateway/build/start-server.js --headless
//
// The file is read again as soon as it is another one. A file that is no config is reported and ignored. The key of the
// credential `deepseek` is the variable DEEPSEEK_API_KEY; a member whose key is missing is left out.

import { subscribe } from 'node:diagnostics_channel';
import { readFileSync, statSync } from 'node:fs';

const HEADER = 'x-portkey-config';
const CHOSEN = [HEADER, 'x-portkey-provider'];
const FILE = process.env.ISOCHRONE_PORTKEY_CONFIG;
if (!FILE) throw new Error('ISOCHRONE_PORTKEY_CONFIG is not set: name the file that `isochrone routes export` writes');

let version;
let config;
let reported;

subscribe('http.server.request.start', ({ request }) => {
  if (CHOSEN.some((name) => name in request.headers)) return;
  refresh();
  if (config === undefined) return;
  request.headers[HEADER] = config;
  request.rawHeaders.push(HEADER, config);
});

// The gateway adds headers to a member's response, which fetch does not allow: without this, it answers streams with the
// status 500 and tries no other member (Portkey-AI/gateway#1389, #1550).
const fetchUnchanged = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const response = await fetchUnchanged(...request);
  return new Response(response.body, response);
};

/** Read the file if it is another one than the last time. */
function refresh() {
  try {
    const { ino, size, mtimeNs } = statSync(FILE, { bigint: true });
    const found = `${ino} ${size} ${mtimeNs}`;
    if (found === version) return;
    version = found;
    const missing = new Set();
    const next = withKeys(checked(JSON.parse(readFileSync(FILE, 'utf8'))), missing);
    const members = `${[...missing].join(', ')} not set: members with these keys are left out`;
    if (!next) throw new Error(members);
    config = asHeader(next);
    report(missing.size ? members : undefined);
  } catch (error) {
    report(`${FILE} is ignored: ${error.message}`);
  }
}

/** Print a problem once, until another one or none. */
function report(problem) {
  if (problem && problem !== reported) console.error(`isochrone: ${problem}`);
  reported = problem;
}

/** The config, or one of its targets. Throws if the gateway would refuse it. */
function checked(target) {
  const { strategy, targets, provider, custom_host: host, api_key: key, override_params: params } = target ?? {};
  if (Array.isArray(targets) && targets.length && strategy?.mode) {
    targets.forEach(checked);
  } else if (![provider, key, params?.model].every((text) => typeof text === 'string') || !URL.canParse(host)) {
    throw new Error('this is no config of `isochrone routes export --output portkey`');
  }
  return target;
}

/** The target with its keys, or undefined if none of its members has one. Adds to `missing` the variables that are not set. */
function withKeys(target, missing) {
  if (target.targets) {
    const targets = target.targets.map((one) => withKeys(one, missing)).filter(Boolean);
    return targets.length ? { ...target, targets } : undefined;
  }
  const name = /^\{\{KEY:(.*)\}\}$/.exec(target.api_key)?.[1];
  if (name === undefined) return target;
  const key = process.env[variable(name)];
  if (!key) missing.add(variable(name));
  return key && { ...target, api_key: key };
}

function variable(name) {
  return `${name.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_|_$/g, '').toUpperCase()}_API_KEY`;
}

/** A header has no character outside of ASCII. */
function asHeader(value) {
  return JSON.stringify(value).replace(/[^ -~]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
