// Package certstest makes certificate authorities and certificates for tests. It holds
// no tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/strandline/strandline/internal/certs"
)

// CA signs certificates. Its files are gone with the test.
type CA struct {
	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

// New makes a CA.
func New(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t, dir: t.TempDir()}
	template := ca.template("test CA")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.key = ca.newKey()
	ca.cert = template
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	ca.must(err)
	ca.cert, err = x509.ParseCertificate(der)
	ca.must(err)
	ca.file = ca.write("ca.pem", "CERTIFICATE", der)
	return ca
}

// File is where the CA's certificate is.
func (ca *CA) File() string { return ca.file }

// Pool trusts the CA.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Issue makes a certificate for hosts, names or addresses, for both sides of a
// connection, and returns its files and the CA's. A change may make it another.
func (ca *CA) Issue(hosts []string, changes ...func(*x509.Certificate)) certs.Files {
	ca.t.Helper()
	template := ca.template("test")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	for _, change := range changes {
		change(template)
	}
	key := ca.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	ca.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ca.must(err)
	name := template.SerialNumber.Text(36)
	return certs.Files{
		Cert: ca.write(name+".pem", "CERTIFICATE", der), Key: ca.write(name+".key", "PRIVATE KEY", private), CA: ca.file,
	}
}

// template has a name, without which OpenSSL finds no issuer.
func (ca *CA) template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	ca.must(err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func (ca *CA) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ca.must(err)
	return key
}

func (ca *CA) write(name, kind string, der []byte) string {
	name = filepath.Join(ca.dir, name)
	ca.must(os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return name
}

func (ca *CA) must(err error) {
	if err != nil {
		ca.t.Helper()
		ca.t.Fatal(err)
	}
}
