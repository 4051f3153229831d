/**
 * Type declarations of the k6 extension xk6-safeqps.
 *
 * Times are milliseconds. Where an option is a `Duration`, a number is milliseconds and a string carries its unit, as
 * everywhere in k6.
 */

declare module 'k6/x/llm' {
  /** Milliseconds as a number, or a string such as "800ms", "30s", "1m30s". */
  export type Duration = number | string;

  /** The API that a request speaks. */
  export type API = 'chat' | 'completions' | 'responses' | 'messages';

  /** The encodings of tiktoken that are built in. A name may come from __ENV: it is checked when the script runs. */
  export type Encoding = 'cl100k_base' | 'o200k_base' | 'p50k_base' | 'r50k_base' | (string & {});

  /** Limits of one request for `llm_goodput`. A limit on something that was not measured is not met. */
  export interface SLO {
    /** Time to first token. */
    ttft?: Duration;
    /** Time per output token after the first. */
    tpot?: Duration;
    /** The longest gap between two chunks. */
    itl?: Duration;
    /** From send to the last byte of the answer. */
    e2e?: Duration;
  }

  /** Prices in currency units for a million tokens. */
  export interface Cost {
    prompt?: number;
    completion?: number;
    /** For prompt tokens that the server took from its cache; default: the price of `prompt`. */
    cached?: number;
  }

  /** A client that tries again. Retries are counted apart (`llm_retries`) and change nothing in what is judged. */
  export interface Retry {
    /** How often one request is tried again, 1 to 10. */
    max: number;
    /** Which failures. Default: http_429, http_5xx and connect. */
    on?: ('http_429' | 'http_5xx' | 'connect' | 'timeout' | 'idle_timeout' | 'stream_truncated' | 'stream_error')[];
    /** The pause before the first retry; it doubles, with jitter. A server's Retry-After is kept. Default: 500 ms. */
    backoff?: Duration;
    /** Retries as a share of first attempts in this process, 0 to 1. Default: 0.1. */
    budget?: number;
  }

  export interface ClientOptions {
    /** Where the API lives, e.g. "http://127.0.0.1:8000/v1". A URL without a path gets "/v1". */
    baseURL: string;
    /** Sent as a bearer token (for `messages` as `x-api-key`). Appears in no log, error, tag or result. */
    apiKey?: string;
    /**
     * The model that requests without a `model` of their own ask for. Weights choose one for each request, by the row of
     * its trace, or else by the iteration; a session stays with its first.
     */
    model?: string | Record<string, number>;
    /** Decides what weights choose. Default: 0. */
    seed?: number;
    /** Headers of every request. Numbers and booleans are sent as their text. */
    headers?: Record<string, string | number | boolean>;
    /** Bounds the whole request. Default: 10 minutes. */
    timeout?: Duration;
    /** Bounds the time without output, from the send on; comments and heartbeats do not count. Default: none. */
    idleTimeout?: Duration;
    /** What `chat()` speaks. Default: "chat". */
    api?: API;
    /** The encoding that counts tokens where the server does not. */
    tokenizer?: Encoding;
    slo?: SLO;
    cost?: Cost;
    /** Tags of every sample. */
    tags?: Record<string, string | number | boolean>;
    /** The share of streams whose ITL samples are published, for very long runs. Default: 1. */
    itlSampling?: number;
    /** Ask for usage with `stream_options.include_usage`. Default: true. */
    includeUsage?: boolean;
    /** Try failed requests again. Default: never. */
    retry?: Retry;
    /** Throw a RequestError where a request fails. Default: false, a failed request returns with `ok: false`. */
    throw?: boolean;
  }

  /** Models a user who leaves: exactly one of the two. */
  export type AbortAfter = { tokens: number; ms?: undefined } | { ms: number; tokens?: undefined };

  /** The provider's own request body, with its own names, and our fields beside them. */
  export type Request = RequestFields & Prompt;

  /** What is asked: `messages` of chat and messages, `prompt` or `prompt_embeds` of completions, `input` or `prompt` of responses. */
  export type Prompt =
    | { messages: unknown[] }
    | { prompt: NonNullable<RequestFields['prompt']> }
    | { prompt_embeds: {} }
    | { input: {} };

  /** A request without its prompt. */
  export interface RequestFields {
    model?: string;
    messages?: unknown[];
    /** A text or token ids, or several; of responses a stored prompt. */
    prompt?: string | string[] | number[] | number[][] | Record<string, unknown>;
    input?: unknown;
    max_tokens?: number;
    max_completion_tokens?: number;
    /** Default: true. With false, E2E and tokens are measured; TTFT and ITL are absent. */
    stream?: boolean;

    slo?: SLO;
    tags?: Record<string, string | number | boolean>;
    abortAfter?: AbortAfter;
    /** When this request should start, in milliseconds since 1970: gives `llm_schedule_delay`. */
    dueTime?: number;
    /** The row of a trace that this request is. */
    row?: number;
    /** Workload class: the tag `class`. */
    class?: string;
    /** The prompt length that was aimed at: gives `llm_prompt_tokens_error`. */
    promptTokens?: number;
    throw?: boolean;

    [providerField: string]: unknown;
  }

  export type ErrorType =
    | 'dns' | 'connect' | 'tls' | 'timeout' | 'idle_timeout' | 'http_4xx' | 'http_429' | 'http_5xx'
    | 'stream_truncated' | 'stream_error' | 'decode' | 'context_length' | 'interrupted';

  /** What a failed request throws where `throw` is set. */
  export interface RequestError extends Error {
    type: ErrorType;
    /** HTTP status, 0 where none came. */
    status: number;
  }

  export interface ToolCall {
    id: string;
    name: string;
    /** JSON as the model wrote it, "{}" where it wrote none; of one of OpenAI's custom tools the plain text. */
    arguments: string;
  }

  export interface Usage {
    /** A number that nobody reported is null. */
    promptTokens: number | null;
    completionTokens: number | null;
    cachedTokens: number | null;
    reasoningTokens: number | null;
    /**
     * Who counted the completion tokens, or of embeddings the prompt's; "chunks": nobody did, and metrics count chunks
     * instead. Null: nobody counted what was embedded.
     */
    source: 'server' | 'tokenizer' | 'chunks' | null;
  }

  /** Milliseconds; null where undefined. */
  export interface Timings {
    ttft: number | null;
    ttftText: number | null;
    /** Of a whole answer, as E2E is. */
    tpot: number | null;
    e2e: number | null;
    scheduleDelay: number | null;
    /** The gap before each chunk but the first, of each answer where `n` asks for several. */
    itl: number[];
  }

  export interface Response {
    ok: boolean;
    outcome: 'ok' | 'failed' | 'cancelled';
    /** 1, and more where the client tried again; the response is that of the last attempt. */
    attempts: number;
    /** HTTP status, 0 where none came. */
    status: number;
    error: { type: ErrorType; message: string } | null;
    /** What a cancelled or interrupted request was waiting for. */
    cancelPhase: 'queued' | 'prefill' | 'decode' | null;
    text: string;
    reasoning: string;
    refusal: string;
    toolCalls: ToolCall[];
    finishReason: string | null;
    /** How many vectors an answer of `embeddings()` holds, and their length; else null. */
    embeddings: { count: number; dimensions: number } | null;
    /** When the request was sent: milliseconds since 1970, with a fraction. */
    startTime: number;
    usage: Usage;
    /** How many chunks carried output. */
    chunks: number;
    timings: Timings;
    /** Whether the request met its SLO; null where none was set, or the user left before a limit was broken. */
    goodput: boolean | null;
    cost: number | null;
    /** As the server says. */
    requestId: string | null;
    model: string | null;
  }

  export class Client {
    constructor(options: ClientOptions);
    /** Sends a request in the client's own `api` and waits for the end of its answer. */
    chat(request: Request): Response;
    asyncChat(request: Request): Promise<Response>;
    completions(request: Request): Response;
    asyncCompletions(request: Request): Promise<Response>;
    responses(request: Request): Response;
    asyncResponses(request: Request): Promise<Response>;
    messages(request: Request): Response;
    asyncMessages(request: Request): Promise<Response>;
    /** `input` is a text, token ids, or a list of either. Of the timings only E2E exists. */
    embeddings(request: EmbeddingsRequest): Response;
    asyncEmbeddings(request: EmbeddingsRequest): Promise<Response>;
  }

  /** A request for embeddings: the provider's own body, and our fields that make sense there. */
  export interface EmbeddingsRequest extends RequestFields {
    input: string | string[] | number[] | number[][];
    dimensions?: number;
    encoding_format?: 'float' | 'base64';
    stream?: false;
    slo?: { e2e?: Duration };
    abortAfter?: { ms: number; tokens?: undefined };
  }

  export interface ImageOptions {
    /** Pixels, 1 to 8192. */
    width: number;
    height: number;
    /** The same seed gives the same picture, another seed another. */
    seed: number;
    /** Passed on. */
    detail?: string;
  }

  /** A part of a message's content, in chat's form; requests to the other APIs get it in theirs. */
  export interface ImagePart {
    type: 'image_url';
    image_url: { url: string; detail?: string };
  }

  /** A made-up picture for a message's content. */
  export function image(options: ImageOptions): ImagePart;

  /** A message of a conversation, in the API's own form. */
  export type Message = Record<string, unknown>;

  export interface SessionOptions {
    system?: string;
    /** The pause before each turn but the first. Default: none. */
    thinkTime?: Duration;
    tags?: Record<string, string | number | boolean>;
  }

  /** A turn's request: what `chat()` takes without messages, and what is done with calls of tools. */
  export type TurnRequest = RequestFields & (ToolLoop | { onToolCall?: undefined; maxRounds?: undefined });

  /** What is done with calls of tools. */
  export interface ToolLoop {
    /** Runs a call. What it returns is the result: a text as it is, anything else as JSON. Without it, calls are left to you. */
    onToolCall: (call: ToolCall) => unknown;
    /** Bounds the requests of one turn. Default: 8. Calls that are left over want their results with the next turn. */
    maxRounds?: number;
  }

  /** The last response of a turn. */
  export interface TurnResponse extends Response {
    /** How many requests the turn took: 1, and more where tools were called. */
    rounds: number;
  }

  /**
   * A conversation: each turn sends the whole history. Samples carry the tag `turn`, from 1, and with `onToolCall` `round`. A turn that
   * did not go well, or whose calls got no results, leaves no history.
   */
  export class Session {
    /** The client's api must be chat, responses or messages. */
    constructor(client: Client, options?: SessionOptions);
    /** One turn: the user's text, a message, or several (results of tools). */
    chat(input: string | Message | Message[], request?: TurnRequest): TurnResponse;
    readonly turns: number;
    readonly messages: Message[];
  }

  const llm: { Client: typeof Client; Session: typeof Session; image: typeof image };
  export default llm;
}

declare module 'k6/x/llm/trace' {
  import type { API, Duration, Encoding, Request } from 'k6/x/llm';

  /** How the served model counts: tokens = perWord (0.2 to 16) × words + overhead (-1 to 100,000). `calibrate()` finds it. */
  export interface Calibration {
    perWord?: number;
    overhead?: number;
    source?: string;
    observations?: number;
    worstError?: number;
  }

  /** What rows become when they are requests. */
  export interface RequestOptions {
    /** Whose request bodies `next()` and `at()` make. Default: "chat"; with tokenIds "completions". */
    api?: API;
    /** Decides prompts, and for `generate` everything random. Default: 0. */
    seed?: number;
    calibration?: Calibration;
    /** Prompts of token ids, exact by construction, for completions servers that take them. */
    tokenIds?: { vocabulary: number } | { low: number; high: number };
    /** A file of prompts, drawn without repetition; `fit` names the encoding by which they are cut to length. */
    prompts?: string | { file: string; fit?: Encoding };
    /** Do not reuse prefixes by the trace's hash ids. */
    ignoreHashIds?: boolean;
    /** Ask for answers of exactly the trace's length. Such runs compare configurations and claim no capacity. */
    ignoreEos?: boolean;
    /** The share of requests that ask for a stream, 0 to 1. Default: 1. */
    streamShare?: number;
  }

  /** How a file is read and replayed. */
  export interface OpenOptions extends RequestOptions {
    format?: string;
    unit?: 's' | 'ms' | 'us' | 'ns' | 'wall_clock';
    blockSize?: number;
    fields?: Record<string, string>;
    zeroOutput?: 'drop' | 'keep';
    skipBadRows?: boolean;
    timeZero?: 'first' | 'zero';
    /** Both ends included. */
    window?: { from?: Duration; to?: Duration };
    limit?: number;
    /** Replay so many times as fast as recorded. */
    speed?: number;
    /** Rescale to this mean rate, in requests per second. Not beside `speed`. */
    rate?: number;
    /** Repeat: for ever, or so often in all. */
    loop?: boolean | number;
    /** Whether repeated rows share the prefixes of their first time. Default: false. */
    samePrefixes?: boolean;
    /** The longest prompt of each class, in tokens. */
    classes?: Record<string, number>;
  }

  export type GenerateOptions = WorkloadOptions & Arrivals;

  /**
   * When requests come: at one rate for a time or a number of requests, or at a rate that changes. Where a script names both
   * lengths, one of them may be undefined.
   */
  export type Arrivals =
    | { rate: number; duration: Duration; count?: number; stages?: undefined; startRate?: undefined }
    | { rate: number; count: number; duration?: Duration; stages?: undefined; startRate?: undefined }
    | { rate: number; count: number | undefined; duration: Duration | undefined; stages?: undefined; startRate?: undefined }
    | { stages: { duration: Duration; target: number }[]; startRate?: number; duration?: Duration; count?: number; rate?: undefined };

  /** How requests of a synthetic workload come, and what they ask for. */
  export interface WorkloadOptions extends RequestOptions {
    /** Gamma shape k of the gaps: 1 Poisson, less bursty, more smooth. Default: 1. */
    burstiness?: number | 'constant';
    freeCount?: boolean;
    /** "chat", "rag", "summarize", "agent", "short=0.6,long=0.4@8000/300", or an object of classes. */
    mix: string | Record<string, unknown>;
    prefix?: { share?: number; tokens: number; groups?: number; zipf?: number };
    loop?: boolean;
    samePrefixes?: boolean;
  }

  export interface ScenarioOptions {
    startTime?: Duration;
    gracefulStop?: Duration;
    /** How late the load generator may start a row before it drops it. Default: 100 ms. */
    tolerance?: Duration;
    exec?: string;
    env?: Record<string, string>;
    options?: Record<string, unknown>;
    tags?: Record<string, string>;
    preAllocatedVUs?: number;
    /** Estimated, and said, where absent. */
    maxVUs?: number;
  }

  /** A scenario of the executor `trace-arrival-rate`, for options.scenarios. */
  export type Scenario = any;

  export class Trace {
    readonly id: string;
    readonly length: number;
    readonly seed: number;
    scenario(options?: ScenarioOptions & { duration?: Duration; maxDuration?: Duration }): Scenario;
    /** Scenarios one after the other, tagged `phase`. */
    phases(
      lengths: { warmup?: Duration; steady?: Duration; recovery?: Duration },
      options?: ScenarioOptions & { name?: string },
    ): Record<string, Scenario>;
    /** Scenarios of rising rates, tagged `step`; each settles (phase warmup) and is held (phase steady). */
    steps(
      rates: number[],
      options: ScenarioOptions & { name?: string; hold: Duration; settle?: Duration },
    ): Record<string, Scenario>;
    /** Stages for a stock ramping-arrival-rate whose timeUnit is the bin. */
    stages(options: { bin: Duration }): { target: number; duration: string }[];
    /** This iteration's request. Each scenario of k6's own executors has rows of its own. */
    next(options?: { api?: API; calibration?: Calibration }): Request;
    /** The request of any row. */
    at(row: number, options?: { api?: API; calibration?: Calibration }): Request;
    summary(): Record<string, any>;
  }

  export interface CalibrateOptions {
    baseURL: string;
    model?: string;
    apiKey?: string;
    headers?: Record<string, string | number | boolean>;
    api?: API;
    /** By the server's /tokenize, or by the usage of answers of one token. Default: whichever it has. */
    by?: 'tokenize' | 'usage';
    seed?: number;
  }

  /** Init context only. */
  export function open(path: string, options?: OpenOptions): Trace;
  /** Init context only. */
  export function generate(options: GenerateOptions): Trace;
  /** For setup(). */
  export function calibrate(options: CalibrateOptions): Calibration;

  const trace: { open: typeof open; generate: typeof generate; calibrate: typeof calibrate };
  export default trace;
}

declare module 'k6/x/llm/gate' {
  import type { Duration, SLO } from 'k6/x/llm';

  export interface Contract {
    readonly file: string;
    readonly phases: { warmup?: string; steady?: string; recovery?: string };
    readonly confidence: number;
    readonly decision: any;
    /** The contract's request_slo, for a client's option slo. */
    readonly slo: SLO | null;
    /** The contract's thresholds in k6's form, and after them the script's own. */
    thresholds(own?: Record<string, any[]>): Record<string, any>;
    /** The checked contract as plain data. */
    toJSON(): any;
  }

  /**
   * Init context only. `baseline` is the results directory that limits against a baseline refer to. One that was not judged, or
   * whose verdict is INVALID, throws.
   */
  export function open(path: string, options?: { baseline?: string }): Contract;
  /** The scenario that watches the service and the load generator; spread it into options.scenarios. */
  export function monitor(contract: Contract, options?: { interval?: Duration; healthURL?: string | string[] }): Record<string, any>;
  /** Prints the verdict above k6's own summary. */
  export function handleSummary(data: any): any;

  const gate: { open: typeof open; monitor: typeof monitor; handleSummary: typeof handleSummary };
  export default gate;
}
