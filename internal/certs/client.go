package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Dial returns the configuration of a client: it trusts the CA, or without one those
// that the machine trusts, and shows its certificate if it has one.
func Dial(f Files) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("a certificate and its key are both needed, or neither")
	case f.Cert != "":
		certificate, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &certificate, nil
		}
	}
	if f.CA == "" {
		return config, nil
	}
	var err error
	config.RootCAs, err = readRoots(f.CA)
	return config, err
}

// readRoots reads the certificates of CAs.
func readRoots(name string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA %s holds no certificate in PEM form", name)
	}
	return roots, nil
}
