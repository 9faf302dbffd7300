/**
 * The progress of one response in a dialect, up to its first content or failure, as the agent and the Python client
 * judge it (`common/isochrone_common/dialects` has the reasons). Pure.
 */

/** `waiting`: nothing that a caller would show. `content`: a token, or a regular end. `failed`: an error. */
export type Progress = "waiting" | "content" | "failed";

/** What a frame is. `finished`: a reason for the end, after which content or a failure may follow. */
type Frame = Progress | "done" | "finished" | "unknown";
type Fields = Readonly<Record<string, unknown>>;

const LIMIT_CHARS = 1 << 20;
/** The most characters of a response that may be an error without framing. */
export const UNFRAMED_CHARS = 8 << 10;
const KEEP_ALIVE = /^(ping|keep[-_]?alive|heartbeat)$/;

/** Finish reasons that are failures of the provider, without separators; the agent has the same ones. */
export const FAILED_REASON = new RegExp(
  "abort|error|fail|cancel|timeout|exception|overload|insufficient|malformed|unexpected|other$|unspecified|preempt" +
    "|interrupt|disconnect|kill|evict|crash|lost|unhealthy|unavailable|missing|toomany|noimage",
);
const FILTER_REASON = new RegExp(
  "filter|safe|recitation|block|prohibited|spii|refus|sensitive|toxic|guardrail|^language$|moderation|policy|modelarmor" +
    "|risk|harm|censor|violation",
);
const THROTTLED = /(?<!\d)429(?!\d)|ratelimit|resourceexhausted|throttl|toomanyrequests|limit(requests|burst)|^130[235]$/;
const FILTER_ERROR =
  /contentfilter|contentpolicy|responsibleai|datainspection|moderationblocked|prohibitedcontent|guardrail/;
const RATE_LIMIT_SENTENCE = /too many requests|rate.?limit\w* (reached|exceeded)|exceeded your/i;
const LIKE_AN_ERROR = new RegExp(
  "error|exception|throttl|fail|limit|quota|denied|unavailable|exceed|time.?out|invalid|forbidden|overload|not found" +
    "|unauthorized|too many requests|bad gateway",
  "i",
);
const BEGINS_AS_ERROR = /^\W{0,3}\w*(error|exception)\b[\]\s:]*/i;
const TITLE = /<(title|h[1-4]|pre|message)[^>]*>\s*([^<\s][^<]*)<\//i;
const SENTENCE_CHARS = 400;

const ERROR_NAME = /^(errors?|err|fault|exception|\w+Exception)$/;
const HOLDERS = ["x_groq", "response", "data", "detail", "message", "result", "body"];
const BARE_TEXTS = ["message", "msg", "detail", "details", "error_msg", "error_message", "errorMessage", "Message"];
const CODES = ["code", "error_code", "errorCode", "status_code", "statusCode", "Code"];
const KINDS = [...CODES, "type", "status", "error_type", "__type"];
const CONTENT = ["choices", "candidates", "delta", "usage", "usageMetadata", "content", "output"];
const ERROR_FIELDS = new Set([
  ...BARE_TEXTS,
  ...KINDS,
  ...["error_description", "status_msg", "title", "text", "faultstring", "reason", "id", "object", "param"],
  ...["request_id", "requestId", "sid", "success", "timestamp", "path", "event_id"],
]);

/** Judges a response as its characters arrive; the boundaries of the reads change nothing. */
export class FirstContent {
  readonly #read: (message: Fields) => Frame | undefined;
  #line = "";
  #data: string[] = [];
  #name = "";
  #size = 0;
  #unframed = "";
  #hasEvents = false;
  #isFinished = false;
  #isUnread = false;

  constructor(dialect: string) {
    this.#read = READERS[dialect] ?? readChat;
  }

  /** Judge the next characters. */
  receive(text: string): Progress {
    // A CR at the end may be the first half of a CRLF.
    const lines = (this.#line + text).split(/\r\n|\n|\r(?!$)/);
    this.#line = lines.pop() ?? "";
    for (const line of lines) {
      const progress = this.#take(line);
      if (progress !== "waiting") return progress;
    }
    if (this.#line.length > LIMIT_CHARS || this.#size > LIMIT_CHARS) return "content"; // the caller judges it
    // An error without framing may have no end of line, and its connection may stay open.
    const isBegun = /^[{[]/.test(this.#line) && this.#line.length <= UNFRAMED_CHARS && isJson(this.#line);
    return isBegun ? this.#noted(unframedFailure(this.#line) ?? "unknown") : "waiting";
  }

  /** Judge what the end of the response completes. */
  end(): Progress {
    const line = this.#line.replace(/\r$/, "");
    const isCut = ["data", "event", "error", "id", "retry"].some((field) => field.startsWith(line));
    let progress = isCut ? "waiting" : this.#take(line, true);
    if (progress === "waiting") progress = this.#dispatch(true);
    if (progress === "waiting" && this.#unframed)
      progress = unframedFailure(this.#unframed) ?? (this.#hasEvents ? "waiting" : "failed");
    return progress === "waiting" && this.#isFinished ? "content" : progress;
  }

  #take(line: string, isEnd = false): Progress {
    if (line === "") return this.#dispatch(isEnd);
    const [, field, value = ""] = /^(data|event|error)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === "event") {
      this.#name = value;
    } else if (field) {
      if (field === "error") this.#name = field;
      this.#data.push(value);
      this.#size += value.length;
      // One line with an object needs no blank line after it.
      if (this.#data.length === 1 && value.startsWith("{") && isJson(value)) return this.#dispatch(isEnd);
    } else if (!/^(id|retry)?(:|$)/.test(line)) {
      return this.#takeUnframed(line);
    }
    return "waiting";
  }

  #takeUnframed(line: string): Progress {
    this.#unframed = `${this.#unframed}${line}\n`.slice(0, UNFRAMED_CHARS);
    const text = [this.#unframed, line].find(isJson);
    if (text === undefined) return "waiting";
    this.#unframed = "";
    return this.#noted(unframedFailure(text.trim()) ?? "unknown");
  }

  #dispatch(isEnd: boolean): Progress {
    const [data, name] = [this.#data.join("\n").trim(), this.#name];
    const isEvent = this.#data.length > 0;
    [this.#data, this.#name, this.#size] = [[], "", 0];
    // What is cut in the middle is no frame.
    if (!isEvent || (isEnd && data !== "[DONE]" && /^[{[]/.test(data) && !isJson(data))) return "waiting";
    this.#hasEvents = true;
    return this.#noted(this.#frame(data, name));
  }

  #noted(frame: Frame): Progress {
    if (frame === "unknown") this.#isUnread = true;
    // After nothing but frames that are not understood, it says no success.
    if (frame === "done") return this.#isUnread && !this.#isFinished ? "failed" : "content";
    if (frame === "finished") this.#isFinished = true;
    return frame === "content" || frame === "failed" ? frame : "waiting";
  }

  #frame(data: string, name: string): Frame {
    if (data.replace(/^"+|"+$/g, "") === "[DONE]") return "done";
    const word = (/^(\[.*\]|\{.*\}|".*")$/s.test(data) ? data.slice(1, -1) : data).trim().toLowerCase();
    if (word === "" || KEEP_ALIVE.test(word)) return name === "error" ? "failed" : "waiting";
    const message = parsed(data);
    if (!message) {
      if (name === "error") return "failed";
      return KEEP_ALIVE.test(name) ? "waiting" : (textFailure(data) ?? "unknown");
    }
    // The name of an event states its type where the object has none.
    return this.#judge(name === "" || name === "message" ? message : { type: name, ...message }, name);
  }

  #judge(message: Fields, name: string): Frame {
    let found: Frame | undefined;
    try {
      found = statedFailure(message, name) ?? this.#read(message);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // a wrong type, or a missing part
    }
    const kinds = [message["type"], message["object"], message["event"]];
    return found ?? (kinds.some((kind) => KEEP_ALIVE.test(String(kind))) ? "waiting" : "unknown");
  }
}

const READERS: Readonly<Record<string, (message: Fields) => Frame | undefined>> = {
  "openai-chat": readChat,
  "openai-responses": readResponses,
  anthropic: readAnthropic,
};

const CHUNK_FIELDS = ["choices", "usage", "x_groq", "prompt_filter_results", "prompt_annotations", "base_resp", "timings"];
const REASONING_FIELDS = [
  ...["reasoning_content", "reasoning", "reasoning_text", "thinking", "reasoning_details"],
  ...["reasoningContent", "thinking_content", "thought", "thoughts", "reasoning_summary"],
];

function readChat(message: Fields): Frame | undefined {
  if (!CHUNK_FIELDS.some((name) => name in message) && message["object"] !== "chat.completion.chunk") return undefined;
  const choices = (filled(message["choices"]) ?? []) as Fields[];
  return firstOf([...choices].map(choiceFrame));
}

function choiceFrame(choice: Fields): Frame {
  // Some gateways send the whole answer in one chunk, in place of a delta.
  const whole = filled(choice["delta"]) ? {} : fieldsOf(choice["message"]);
  const delta = fieldsOf(filled(choice["delta"]) ?? { content: choice["text"] });
  const error = filled(choice["error"]) ?? filled(delta["error"]) ?? filled(whole["error"]);
  if (error) return kindOf(error);
  const texts = [whole["content"], ...REASONING_FIELDS.map((name) => delta[name]), delta["content"], delta["refusal"]];
  if (texts.some((text) => textOf(text)) || hasCall(whole) || hasCall(delta)) return "content";
  return finish(choice["finish_reason"]);
}

function hasCall(delta: Fields): boolean {
  const calls = filled(delta["tool_calls"]) ?? [];
  const called = (Array.isArray(calls) ? calls : [calls]).map(fieldsOf).map((one) => one["function"] ?? one["custom"]);
  const audio = fieldsOf(delta["audio"]);
  const functions = [...called, delta["function_call"]].map(fieldsOf);
  const isCalled = ({ name, arguments: given, input }: Fields): boolean =>
    textOf(name) !== "" || (filled(given) ?? filled(input)) !== undefined;
  return functions.some(isCalled) || textOf(filled(audio["transcript"]) ?? audio["data"]) !== "";
}

function readResponses(message: Fields): Frame | undefined {
  const kind = String(message["type"] ?? "");
  const { delta, text, item, response } = message;
  const { error, incomplete_details, output } = fieldsOf(response);
  if (/^response\.refusal\.(delta|done)$/.test(kind)) return "content";
  if (/^response\.(failed|cancelled)$/.test(kind)) return filled(error) ? kindOf(error) : finish(kind);
  if (/^response\.(completed|incomplete|done)$/.test(kind)) {
    const hasText = ((filled(output) ?? []) as unknown[]).map(fieldsOf).some((one) => one["type"] === "message" && textOf(one));
    return hasText ? "content" : finish(filled(fieldsOf(incomplete_details)["reason"]) ?? kind, true);
  }
  if (kind === "response.output_text.done") return shown(text);
  // The name of a tool is the first output of its call.
  if (kind === "response.output_item.added") return shown(fieldsOf(item)["name"]);
  const isDelta = /^response\.(output_text|function_call_arguments|custom_tool_call_input|reasoning(_\w+)?)\.delta$/;
  if (isDelta.test(kind)) return shown(delta);
  return kind.startsWith("response.") ? "waiting" : undefined;
}

function readAnthropic(message: Fields): Frame | undefined {
  const delta = fieldsOf(message["delta"]);
  const block = fieldsOf(message["content_block"]);
  switch (message["type"]) {
    case "content_block_delta": {
      const fields: Fields = { text_delta: "text", input_json_delta: "partial_json", thinking_delta: "thinking" };
      return shown(delta[String(fields[String(delta["type"])])]);
    }
    case "content_block_start":
      if (/^(redacted_)?thinking$/.test(String(block["type"]))) return shown(block["thinking"]);
      return shown(filled(block["name"]) ?? block["text"]);
    case "message_delta":
      return finish(delta["stop_reason"]);
    case "message_stop":
      return "content";
    case "message_start":
    case "content_block_stop":
      return "waiting";
    default:
      return undefined;
  }
}

function shown(text: unknown): Frame {
  return textOf(text) ? "content" : "waiting";
}

/** The first frame that decides, or else the last. */
function firstOf(frames: readonly Frame[]): Frame {
  const deciding = frames.find((frame) => frame === "content" || frame === "failed");
  return deciding ?? (frames.includes("finished") ? "finished" : "waiting");
}

/** What a finish reason is; one of a content filter is content, because another member would refuse as well. */
function finish(reason: unknown, isFinal = false): Frame {
  const word = String(filled(reason) ?? "")
    .toLowerCase()
    .replace(/[\s._-]+/g, "");
  if (FILTER_REASON.test(word) || isFinal) return FAILED_REASON.test(word) && !FILTER_REASON.test(word) ? "failed" : "content";
  if (/^(none|null|)$/.test(word)) return "waiting";
  return FAILED_REASON.test(word) ? "failed" : "finished";
}

/** The failure that an object states in any of the known forms. */
function statedFailure(message: Fields, event: string): Progress | undefined {
  for (const holder of [message, ...HOLDERS.map((name) => message[name])].filter(isObject)) {
    const named = Object.entries(holder).find(([name, error]) => ERROR_NAME.test(name) && isError(error));
    if (named) {
      const type = named[0].endsWith("Exception") ? { __type: named[0] } : {};
      return kindOf(named[1], { ...type, ...message, ...holder });
    }
  }
  const base = message["base_resp"];
  if (isObject(base) && !isSuccess(base["status_code"])) return kindOf(base);
  const names = [event, message["object"], message["type"]].map((name) => String(name).toLowerCase());
  const isStated =
    names.some((name) => /(error|exception)$/.test(name)) ||
    String(message["status"]).toLowerCase() === "error" ||
    message["success"] === false ||
    !isSuccess(message["error_code"]) ||
    !isSuccess(message["error_type"]) ||
    isBare(message);
  return isStated ? kindOf(message, /exception$/i.test(event) ? { type: event } : {}) : undefined;
}

function isError(error: unknown): boolean {
  const values = isObject(error) ? Object.values(error) : [error];
  return values.some((value) => value === true || (filled(value) !== undefined && !isSuccess(value)));
}

/** Whether an object without content has the text of an error, and no code of success. */
function isBare(message: Fields): boolean {
  const isGiven = (name: string): boolean => message[name] !== undefined && message[name] !== null;
  if (!BARE_TEXTS.some((name) => filled(message[name])) || CONTENT.some((name) => filled(message[name]))) return false;
  const codes = CODES.filter(isGiven);
  if (codes.length > 0) return !codes.every((name) => isSuccess(message[name]));
  const kinds = KINDS.filter(isGiven).map((name) => String(message[name]));
  const isErrorKind = (kind: string): boolean => !isSuccess(kind) && (/^\d+$/.test(kind) || LIKE_AN_ERROR.test(kind));
  const isPlain = Object.keys(message).every((name) => ERROR_FIELDS.has(name));
  return isPlain && (kinds.length === 0 || kinds.some(isErrorKind));
}

/** The kind of an error: one of a content filter is content. */
export function kindOf(error: unknown, outer: Fields = {}): Progress {
  const fields = fieldsOf(error);
  const places = [fieldsOf(fields["error"]), fields, outer];
  const kinds = places.flatMap((one) =>
    KINDS.map((name) =>
      String(filled(one[name]) ?? "")
        .toLowerCase()
        .replace(/[\s._-]+/g, ""),
    ),
  );
  const isFilter = !kinds.some((kind) => THROTTLED.test(kind)) && kinds.some((kind) => FILTER_ERROR.test(kind));
  return isFilter ? "content" : "failed";
}

/** The failure that text outside of events states, as the body of an error. */
export function unframedFailure(body: string): Progress | undefined {
  return failureIn([body, ...body.split("\n", 3)]) ?? (errorText(body) ? "failed" : undefined);
}

/** The failure of a frame that is no JSON: that of one of its lines, or a text that begins as an error. */
function textFailure(data: string): Progress | undefined {
  const found = failureIn(data.split("\n").slice(1, 3));
  if (found) return found;
  const begin = data.startsWith("{") ? undefined : BEGINS_AS_ERROR.exec(data)?.[0];
  if (begin === undefined) return RATE_LIMIT_SENTENCE.test(errorText(data)) ? "failed" : undefined;
  return kindOf(parsed(data.slice(begin.length)));
}

function failureIn(texts: readonly string[]): Progress | undefined {
  for (const message of texts.map(parsed)) {
    const failure = message && statedFailure(message, "");
    if (failure) return failure;
  }
  return undefined;
}

/** A short text that reads like an error, or such a title of a page; empty for anything else. */
function errorText(body: string): string {
  const text = (TITLE.exec(body)?.[2] ?? body).trim();
  const pattern = /^[{[<]/.test(text) ? BEGINS_AS_ERROR : LIKE_AN_ERROR;
  return text.length <= SENTENCE_CHARS && pattern.test(text) ? text : "";
}

/** The object in an event or a body, which may be in a list, or encoded twice. */
function parsed(text: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "string" && value.startsWith("{")) return parsed(value);
    const [first] = Array.isArray(value) ? (value as unknown[]) : [value];
    return isObject(first) ? first : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a text is an object or a list that is not empty. */
function isJson(text: string): boolean {
  if (!/^\s*(\{.*\}|\[.*\])\s*$/s.test(text)) return false;
  try {
    return filled(JSON.parse(text)) !== undefined;
  } catch {
    return false;
  }
}

function isSuccess(code: unknown): boolean {
  return code === undefined || code === null || code === true || /^(0|200|20000|ok|success|)$/i.test(String(code));
}

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fieldsOf(value: unknown): Fields {
  return isObject(value) ? value : {};
}

/** A value that is not empty. */
function filled(value: unknown): unknown {
  const isEmpty = !value || (typeof value === "object" && Object.keys(value).length === 0);
  return isEmpty ? undefined : value;
}

const TEXT_FIELDS = ["text", "thinking", "content", "parts", "summary", "reasoning", "reasoning_content", "refusal"];

/** The text of content in any of its forms: a string, a list of parts, an object with a text. */
function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(textOf).join("");
  return isObject(value) ? (TEXT_FIELDS.map((name) => textOf(value[name])).find((text) => text) ?? "") : "";
}
