package llm

import (
	"cmp"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/safeqps/xk6-safeqps/llm/stream"
	"github.com/safeqps/xk6-safeqps/llm/wire"
)

// The error types that a transport can show; package wire has those that a body can.
const (
	errorDNS         wire.ErrorType = "dns"
	errorConnect     wire.ErrorType = "connect"
	errorTLS         wire.ErrorType = "tls"
	errorTimeout     wire.ErrorType = "timeout"
	errorIdleTimeout wire.ErrorType = "idle_timeout"
	errorInterrupted wire.ErrorType = "interrupted"
)

// The reasons for which the client itself ends a request, as causes of its context.
var (
	errIdle      = errors.New("no output came within idleTimeout")
	errAbandoned = errors.New("the modelled user left (abortAfter)")
	errTestEnds  = errors.New("the iteration was interrupted while the request was in flight")
	errNeverSent = errors.New("the iteration ended before the request was sent")
	errDrained   = errors.New("the connection stayed open after the answer had ended")
)

// failure is why a request did not end well.
type failure struct {
	kind wire.ErrorType
	text string
}

// classify names the failure that an error of the transport, the body or the decoder stands for. answered says whether
// the response header had come.
func classify(err error, answered bool) failure {
	var (
		wireErr   *wire.Error
		dnsErr    *net.DNSError
		opErr     *net.OpError
		headerErr tls.RecordHeaderError
		certErr   *tls.CertificateVerificationError
		alertErr  tls.AlertError
		rootsErr  x509.UnknownAuthorityError
		timeout   net.Error
	)
	switch {
	case errors.As(err, &wireErr):
		return failure{wireErr.Type, wireErr.Error()}
	case errors.Is(err, errIdle):
		return failure{errorIdleTimeout, errIdle.Error()}
	case errors.Is(err, errTestEnds), errors.Is(err, context.Canceled):
		return failure{errorInterrupted, errTestEnds.Error()}
	case errors.Is(err, stream.ErrEventTooLong), isCorrupt(err):
		return failure{wire.ErrDecode, err.Error()}
	case errors.As(err, &dnsErr):
		return failure{errorDNS, err.Error()}
	case errors.As(err, &headerErr), errors.As(err, &certErr), errors.As(err, &alertErr), errors.As(err, &rootsErr),
		strings.Contains(err.Error(), "tls: "):
		return failure{errorTLS, err.Error()}
	case errors.As(err, &opErr) && opErr.Op == "dial":
		return failure{errorConnect, err.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return failure{errorTimeout, "no complete answer within timeout"}
	case answered:
		return failure{wire.ErrTruncated, "the answer broke off: " + brokenBy(err)}
	case strings.Contains(err.Error(), "readLoopPeekFailLocked: %!w(<nil>)"): // net/http's words for it
		return failure{wire.ErrDecode, "the answer is not HTTP: the server spoke before it was asked"}
	case strings.Contains(err.Error(), "malformed "):
		_, problem, _ := strings.Cut(err.Error(), "connection broken: ")

		return failure{wire.ErrDecode, "the answer is not HTTP: " + cmp.Or(problem, err.Error())}
	case errors.As(err, &opErr), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failure{errorConnect, "the connection broke before an answer: " + brokenBy(err)}
	default:
		return failure{errorConnect, err.Error()} // k6 refused to connect (blockHostnames, blacklistIPs), and says why
	}
}

// isCorrupt is true for a gzipped answer whose bytes are none of gzip's.
func isCorrupt(err error) bool {
	var corrupt flate.CorruptInputError

	return errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt)
}

func brokenBy(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the server closed the connection"
	}

	return err.Error()
}
