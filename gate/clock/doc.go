// Package clock measures how far the clocks of two load generators are apart, by the one clock that both of them see:
// the Date header in the answers of the service.
//
// The header has whole seconds, but the moments at which it turns from one second to the next are common to all that ask
// the service. An answer with the old second was sent for before its turn, and one with the new second was received after
// it. Each host brackets each turn so, by its own clock, and two brackets of the same turn bound the offset of the two
// clocks: no second is assumed to be right, or to turn in time. That matters, since a server may cache the header
// (uvicorn, which serves vLLM and SGLang, renews it about once a second and not at the second's beginning).
//
// What is assumed: all answers carry the seconds of one clock. Several replicas that are asked in turn contradict each
// other, which is found; hosts that are each served by a replica of their own are not.
package clock
