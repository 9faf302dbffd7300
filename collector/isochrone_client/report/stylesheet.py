"""The style sheet of the report: light and dark, for screens and for print, without external files."""

import base64
import hashlib

_LIGHT = """--paper: #ffffff; --ink: #1b1f24; --faint: #57606a; --rule: #d0d7de; --band: #e4e8ed; --well: #f4f6f8;
  --link: #0b57b0; --good: #0f6a2c; --bad: #a3142a; --warn: #7a4f00; --dns: #8a6d00; --tcp: #b04a00; --tls: #a3286c;
  --rtt: #0b5cad; --server: #20744a; --worse1: #fdeaea; --worse2: #f9cbcd; --worse3: #f0a3a8; --better1: #e6f5ea;
  --better2: #c2e7cd; --better3: #93d4a6; --began: #b3261e; --lasted: #fbe3df; --ended: #dff1e4;
  --r0: #0b5cad; --r1: #b04a00; --r2: #20744a; --r3: #a3286c; --r4: #6a3fb5; --r5: #00707a; --r6: #7a5230;
  --r7: #57606a;"""
_DARK = """--paper: #14171a; --ink: #e8eaed; --faint: #a4adb6; --rule: #3a424a; --band: #2b323a; --well: #1c2126;
  --link: #7cb7ff; --good: #57d977; --bad: #ff8a80; --warn: #e8b949; --dns: #e0c341; --tcp: #f0914a; --tls: #f08cc4;
  --rtt: #66a9f5; --server: #5fcf95; --worse1: #35201f; --worse2: #54292a; --worse3: #7a3337; --better1: #182b1e;
  --better2: #1d4529; --better3: #226235; --began: #ff8a80; --lasted: #3c2322; --ended: #1a3323;
  --r0: #66a9f5; --r1: #f0914a; --r2: #5fcf95; --r3: #f08cc4; --r4: #b79cf7; --r5: #4fc9d6; --r6: #d3a77c;
  --r7: #a4adb6;"""
# Dashes tell lines apart without their colours.
_DASHES = {1: "7 3", 2: "2 3", 3: "9 3 2 3", 4: "12 3", 5: "4 2", 6: "9 3 2 3 2 3", 7: "1 4"}
_LINES = " ".join(f".r{place} {{ stroke: var(--r{place}); }}" for place in range(8)) + " ".join(
    f".r{place} {{ stroke-dasharray: {dash}; }}" for place, dash in _DASHES.items()
)

# A block per row, with a tile per cell: of heat tables with many regions, and of all of them on narrow screens.
_TILES = """
TABLE, TABLE tbody, TABLE caption { display: block; }
TABLE thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
TABLE tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: 2px;
  padding: 0.5rem 0; border-bottom: 1px solid var(--rule); }
TABLE tbody th { grid-column: 1 / -1; position: static; max-width: none; border: 0; font-weight: 600; }
TABLE td { border: 0; padding: 0.25rem 0.4rem; text-align: left; white-space: normal; min-width: 0; }
TABLE td[data-label]::before { content: attr(data-label); display: block; color: inherit; font-size: 0.75rem; }
"""

_SCREEN = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main, header, footer { max-width: 80rem; margin: 0 auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 0.5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; list-style: none; margin: 0.75rem 0; padding: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.75rem 0; font-size: 0.875rem; }
dt { color: var(--faint); }
dd { margin: 0; }
.verdict { font-size: 1.125rem; max-width: 60rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.25rem 0; }
th, td { padding: 0.2rem 0.45rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: middle; overflow-wrap: normal; }
th { font-weight: 600; }
thead th { vertical-align: bottom; background: var(--well); white-space: normal; }
small { font-size: 0.8125rem; }
thead small { display: block; font-weight: 400; color: var(--faint); white-space: nowrap; }
.name { text-align: left; white-space: normal; min-width: 6rem; overflow-wrap: anywhere; }
tbody th { position: sticky; left: 0; background: var(--paper); font-weight: 400; max-width: 16rem; }
.drawn { padding-left: 1rem; padding-right: 1rem; text-align: center; }
.drawn svg { display: block; width: 17rem; overflow: visible; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .dim { color: var(--faint); }
.notes { color: var(--faint); font-size: 0.875rem; padding-left: 1.2rem; max-width: 60rem; }
.missing { border-left: 4px solid var(--warn); padding-left: 0.75rem; }
.heat .tile { min-width: 6.5rem; border: 2px solid var(--paper); }
.heat .tile small { display: block; white-space: normal; }
.worse1 { background: var(--worse1); } .worse2 { background: var(--worse2); } .worse3 { background: var(--worse3); }
.better1 { background: var(--better1); } .better2 { background: var(--better2); }
.better3 { background: var(--better3); }
.unsure { background: repeating-linear-gradient(135deg, var(--well) 0 6px, var(--paper) 6px 12px); }
.swatch { display: inline-block; width: 1.1rem; height: 0.8rem; margin-right: 0.35rem; vertical-align: -0.05rem;
  border: 1px solid var(--rule); }
.zero { stroke: var(--ink); stroke-width: 1; }
.tick { stroke: var(--rule); stroke-width: 1; }
.mark { fill: var(--faint); font-size: 0.75rem; }
.margin { fill: var(--band); }
.whisker { stroke: var(--ink); stroke-width: 2; }
.dot { fill: var(--ink); stroke: var(--paper); stroke-width: 1; }
.dot.good { fill: var(--good); } .dot.bad { fill: var(--bad); }
.dot.dim { fill: var(--paper); stroke: var(--faint); stroke-width: 2; }
.part { stroke: var(--paper); stroke-width: 1; }
.dns { fill: var(--dns); } .tcp { fill: var(--tcp); } .tls { fill: var(--tls); } .rtt { fill: var(--rtt); }
.server { fill: var(--server); }
.key { display: inline-block; width: 0.8rem; height: 0.8rem; margin-right: 0.35rem; vertical-align: -0.05rem; }
.key.wide { width: 2rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0; margin: 0.75rem 0;
  font-size: 0.875rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; }
figcaption small { display: block; }
.plot { display: block; width: calc(100% - 2.75rem); margin-left: 2.75rem; overflow: visible; }
.line { fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round;
  vector-effect: non-scaling-stroke; }
.plot .mark { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.plot .number { fill: var(--ink); font-weight: 600; }
.began { stroke: var(--began); stroke-width: 2; stroke-dasharray: 4 3; } .began.better { stroke: var(--good); }
.lasted { fill: var(--lasted); } .lasted.better { fill: var(--ended); }
footer { color: var(--faint); font-size: 0.875rem; margin-top: 2.5rem; padding-bottom: 2rem; }
"""
# A block of labelled values per row.
_NARROW = """
  .scroll { overflow: visible; }
  table, tbody, tbody tr, caption { display: block; }
  table { font-size: 0.8125rem; line-height: 1.35; }
  td:empty { display: none; }
  table:not(.charted) thead, thead th:not(.drawn) { position: absolute; clip-path: inset(50%); width: 1px;
    height: 1px; overflow: hidden; }
  .charted thead, .charted thead tr, thead th.drawn { display: block; }
  tbody tr { display: flex; flex-wrap: wrap; gap: 0 0.75rem; border-bottom: 1px solid var(--rule);
    padding: 0.3rem 0; }
  th, td { border: 0; padding: 0; text-align: left; white-space: normal; }
  tbody th { position: static; max-width: none; flex-basis: 100%; order: -1; font-weight: 600; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--faint); }
  td.name { min-width: 0; }
  .drawn { flex-basis: 100%; padding: 0; }
  .drawn svg { width: 100%; }
"""
_PRINT = """
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  :root { color-scheme: light; --ink: #000000; --faint: #444444; --rule: #bbbbbb; --well: #ffffff; --link: #000000; }
  body { font-size: 10pt; } table { font-size: 8pt; } nav { display: none; } .scroll { overflow: visible; }
  tr, figure { break-inside: avoid; } thead { display: table-header-group; } h2, caption { break-after: avoid; }
  th, td { padding: 0.15rem 0.4rem; } .name { overflow-wrap: anywhere; } .drawn svg { width: 10rem; }
  tbody th { position: static; } * { print-color-adjust: exact; }
}
"""
_IS_NARROW = "@media screen and (max-width: 56rem)"

SHEET = "\n".join(
    [
        f":root {{ color-scheme: light dark; {_LIGHT} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}",
        _LINES,
        _SCREEN,
        _TILES.replace("TABLE", ".tiles"),
        f"{_IS_NARROW} {{ {_NARROW} {_TILES.replace('TABLE', '.heat')} }}",
        _PRINT,
    ]
)
_DIGEST = base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode()
# Nothing is fetched, no script runs, and no other style applies, whatever the texts of a report contain.
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; base-uri 'none'; form-action 'none'"
