package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// Explain says in a few words why a handshake failed, and what to look at; "" where
// the error itself says it best.
func Explain(err error) string {
	var header tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &header):
		return "the other side does not speak TLS"
	case errors.As(err, &unknown):
		return "the other side's certificate is of a CA that is not trusted here"
	case errors.As(err, &name):
		return "the other side's certificate is for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the other side's certificate has expired, or is not valid yet"
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "the other side's certificate is not meant for this side of a connection (extended key usage)"
	case strings.Contains(err.Error(), "didn't provide a certificate"):
		return "the other side has no certificate"
	case strings.Contains(err.Error(), "remote error: tls: "):
		return "the other side refuses this side's certificate or version of TLS"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "the handshake took too long"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the other side ended the connection during the handshake: it may not trust this side's certificate, or not speak TLS"
	}
	return ""
}
