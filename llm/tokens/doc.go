// Package tokens counts tokens, and builds prompts of an exact number of them.
//
// A load test asks for "a prompt of 2,000 tokens". Characters divided by four is off by tens of percent, and
// prompts that share a beginning by accident hit the server's prefix cache. So:
//
//   - Tokenizer counts by the tiktoken encodings, offline: the ranks are compiled in.
//   - Builder makes text from a vocabulary of common English words, each of which is exactly one token in every
//     supported encoding, with or without a space before it. n words are n tokens, and text that begins
//     differently stays different from its first word on.
//   - IDRange makes prompts of token ids, which are exact whatever the tokenizer is.
//   - Calibration is the served model's own view: tokens per word and the overhead of its chat template, fitted
//     from the server's tokenizer endpoint (ServerTokenizer) or from its `usage.prompt_tokens`.
//
// Everything but ServerTokenizer is a pure function of its arguments: the same seed gives the same bytes in every
// process and on every machine. The golden values in the tests are part of that promise.
package tokens
