"""The style sheet of the report: light and dark, for screens and for print, without external files."""

import base64
import hashlib

SHEET = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --faint: #57606a; --rule: #d0d7de;
  --band: #e4e8ed; --well: #f4f6f8; --link: #0b57b0; --good: #0f6a2c; --bad: #a3142a; --warn: #7a4f00;
  --dns: #8a6d00; --tcp: #b04a00; --tls: #a3286c; --rtt: #0b5cad; --server: #20744a; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e8eaed; --faint: #a4adb6; --rule: #3a424a;
  --band: #2b323a; --well: #1c2126; --link: #7cb7ff; --good: #57d977; --bad: #ff8a80; --warn: #e8b949;
  --dns: #e0c341; --tcp: #f0914a; --tls: #f08cc4; --rtt: #66a9f5; --server: #5fcf95; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main, header, footer { max-width: 80rem; margin: 0 auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 0.5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
p { max-width: 46rem; margin: 0.5rem 0; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; list-style: none; margin: 0.75rem 0; padding: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.75rem 0; }
dt { color: var(--faint); }
dd { margin: 0; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.25rem 0; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap;
  vertical-align: middle; }
th { font-weight: 600; }
thead th { vertical-align: bottom; background: var(--well); }
thead small { display: block; font-weight: 400; color: var(--faint); font-size: 0.8125rem; }
.name { text-align: left; white-space: normal; min-width: 6rem; overflow-wrap: break-word; }
tbody th { position: sticky; left: 0; background: var(--paper); font-weight: 400; max-width: 16rem; }
.drawn { padding-left: 1rem; padding-right: 1rem; text-align: center; }
.drawn svg { display: block; width: 17rem; overflow: visible; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .dim { color: var(--faint); }
.notes { color: var(--faint); font-size: 0.875rem; padding-left: 1.2rem; max-width: 60rem; }
.missing { border-left: 4px solid var(--warn); padding-left: 0.75rem; }
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
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; list-style: none; padding: 0; margin: 0.75rem 0; }
@media (max-width: 40rem) {
  .drawn svg { width: 11rem; } tbody th { max-width: 9rem; } th, td { padding: 0.2rem 0.4rem; }
}
footer { color: var(--faint); font-size: 0.875rem; margin-top: 2.5rem; padding-bottom: 2rem; }
@media print {
  @page { size: A4 landscape; margin: 12mm; }
  :root { color-scheme: light; --paper: #ffffff; --ink: #000000; --faint: #444444; --rule: #bbbbbb; --band: #e4e8ed;
    --well: #ffffff; --link: #000000; --good: #0f6a2c; --bad: #a3142a; --warn: #7a4f00; --dns: #8a6d00;
    --tcp: #b04a00; --tls: #a3286c; --rtt: #0b5cad; --server: #20744a; }
  body { font-size: 10pt; } table { font-size: 8pt; } nav { display: none; } .scroll { overflow: visible; }
  tr, figure { break-inside: avoid; } thead { display: table-header-group; } h2, caption { break-after: avoid; }
  th, td { padding: 0.15rem 0.4rem; } .name { overflow-wrap: anywhere; } .drawn svg { width: 10rem; }
  tbody th { position: static; } * { print-color-adjust: exact; }
}
"""
_DIGEST = base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode()
# Nothing is fetched, no script runs, and no other style applies, whatever the texts of a report contain.
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; img-src data:; base-uri 'none'; form-action 'none'"
