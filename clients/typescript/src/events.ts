/**
 * Server-sent events of a stream of bytes, after the WHATWG grammar: the boundaries of the reads never change them, and
 * an event that is not complete at the end is none. Source: section 9.2.6 of the HTML standard.
 */

const LIMIT_CHARS = 1 << 20;

/** Yield the data of each event. Throws `RangeError` for a line or an event of more than 2^20 characters. */
export async function* eventsOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  let size = 0;
  for await (const bytes of body) {
    // A CR at the end may be the first half of a CRLF.
    const lines = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const value = /^data(?:: ?(.*))?$/s.exec(line);
      if (value) {
        data.push(value[1] ?? "");
        size += line.length;
      } else if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
        size = 0;
      }
    }
    if (rest.length > LIMIT_CHARS || size > LIMIT_CHARS) throw new RangeError("an event is too long");
  }
}
