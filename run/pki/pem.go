package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

func encodeCert(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func encodePublicKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// DecodeCerts parses a bundle. Anything between or after the blocks that is not white space is an error: a file that
// was cut off inside a block would otherwise look like a shorter bundle.
func DecodeCerts(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %q block instead of a certificate", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds no readable certificate: %w", err)
		}
		out, data = append(out, c), rest
	}
	if len(out) == 0 {
		return nil, errors.New("holds no PEM certificate")
	}
	if len(bytes.TrimSpace(data)) != 0 {
		return nil, errors.New("is damaged after its last certificate")
	}
	return out, nil
}

// decodeKey parses a private key in any of the three usual encodings, so that an operator may provide an authority.
func decodeKey(data []byte) (crypto.Signer, error) {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return nil, errors.New("holds no PEM private key")
		}
		data = rest
		var key any
		var err error
		switch block.Type {
		case "EC PARAMETERS":
			continue
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			return nil, fmt.Errorf("holds a %q block instead of a private key", block.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("holds no readable private key: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("holds a private key that cannot sign (%T)", key)
		}
		return signer, nil
	}
}

// publicBlock is a public key with the PEM text it came from.
type publicBlock struct {
	key crypto.PublicKey
	pem []byte
}

func decodePublicKeys(data []byte) ([]publicBlock, error) {
	var out []publicBlock
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("holds a %q block instead of a public key", block.Type)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds no readable public key: %w", err)
		}
		out, data = append(out, publicBlock{key, pem.EncodeToMemory(block)}), rest
	}
	if len(bytes.TrimSpace(data)) != 0 {
		return nil, errors.New("is damaged or holds something else than PEM public keys")
	}
	return out, nil
}
