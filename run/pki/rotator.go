package pki

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// rotator applies the decisions about one authority to its files.
type rotator struct {
	authorityState
	folder *folder
	// file is the name of the files without their endings.
	file string
	// parent is the key from which the first key of the authority is derived; nil for a random one.
	parent crypto.Signer
	// bundle, keyPEM and nextPEM are the contents of the files.
	bundle, keyPEM, nextPEM []byte
	now                     time.Time
	news                    []Notice
}

func (s *rotator) crtFile() string { return s.file + ".crt" }
func (s *rotator) keyFile() string { return s.file + ".key" }

// nextFile is the file of the new authority's key until that authority signs.
func (s *rotator) nextFile() string { return s.file + "-next.key" }

// oldEnding is added to the names of files that a new authority replaces.
const oldEnding = ".old"

// maxSteps is more than there can be in a row.
const maxSteps = 8

// authority loads or makes an authority, and does what is due now. Messages about it are added to m.
func (f *folder) authority(s rotator, o Options, m *material) (*Authority, error) {
	s.folder, s.shared, s.now = f, o.Shared, o.Now()
	if err := s.load(); err != nil {
		return nil, err
	}
	for range maxSteps {
		todo := s.decide(s.now)
		if todo == stepKeep {
			break
		}
		if todo == stepWarn {
			s.warn()
			break
		}
		if err := s.do(todo); err != nil {
			return nil, err
		}
	}
	m.notices = append(m.notices, s.news...)
	a := &Authority{Cert: s.certs[0], Key: s.key, PEM: s.bundle, Pool: x509.NewCertPool()}
	for _, c := range s.certs {
		a.Pool.AddCert(c)
	}
	return a, nil
}

// deriveKey derives the first key of an authority from that of its parent, and stores it. Servers that share a store
// have copies of the parent's key from before this authority existed; all of them derive the same key, and trust what
// any of them signs.
func (s *rotator) deriveKey() (err error) {
	key, err := derive(s.parent, s.name)
	if err != nil {
		return fmt.Errorf("derive the key of %s: %w", s.name, err)
	}
	if s.keyPEM, err = encodeKey(key); err != nil {
		return err
	}
	s.key = key
	return s.folder.write(s.keyFile(), s.keyPEM, modeSecret)
}

// load reads the files, and makes them in a folder that has none. The key is written first: a key without a certificate
// is an interrupted start and is completed, and a certificate without its key is an error.
func (s *rotator) load() (err error) {
	s.bundle, err = s.folder.read(s.crtFile())
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	s.key, s.keyPEM, err = s.folder.key(s.keyFile(), missing && s.parent == nil)
	if errors.Is(err, fs.ErrNotExist) && missing && s.parent != nil {
		err = s.deriveKey()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return s.folder.problem(s.keyFile(), errors.New("is missing but "+s.crtFile()+" is there"),
			"restore it from a backup, or remove "+s.crtFile()+" too for a new authority (every certificate it signed stops working)")
	}
	if err != nil {
		return err
	}
	s.next, s.nextPEM, err = s.folder.key(s.nextFile(), false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if missing {
		cert, err := selfSign(s.name, s.key, s.now)
		if err != nil {
			return err
		}
		return s.publish(cert)
	}
	if s.certs, err = DecodeCerts(s.bundle); err != nil {
		return s.folder.problem(s.crtFile(), err, "restore it from a backup, or remove it to have it made again from "+s.keyFile())
	}
	return nil
}

// publish replaces the bundle.
func (s *rotator) publish(certs ...*x509.Certificate) error {
	s.certs, s.bundle = certs, nil
	for _, c := range certs {
		s.bundle = append(s.bundle, encodeCert(c)...)
	}
	return s.folder.write(s.crtFile(), s.bundle, modePublic)
}

// do takes one step. Within each, the file that is written first does no harm without those that follow.
func (s *rotator) do(todo step) error {
	signer := s.certs[0]
	switch todo {
	case stepMake, stepCertify:
		return s.makeSuccessor(todo == stepMake)
	case stepPromote:
		successor := s.successor(s.now)
		s.notify(false, "%s: the new authority, good until %s, signs from now on; the former one stays trusted until %s", s.path(), day(successor.NotAfter), day(signer.NotAfter))
		rest := slices.DeleteFunc(slices.Clone(s.certs), successor.Equal)
		return s.publish(append([]*x509.Certificate{successor}, rest...)...)
	case stepMoveKey:
		s.key, s.keyPEM, s.next, s.nextPEM = s.next, s.nextPEM, nil, nil
		s.folder.unneeded = append(s.folder.unneeded, s.nextFile())
		return s.folder.write(s.keyFile(), s.keyPEM, modeSecret)
	case stepReplace:
		return s.replace()
	case stepDrop:
		s.notify(false, "%s: a former authority has expired and is no longer in the bundle", s.path())
		return s.publish(slices.DeleteFunc(slices.Clone(s.certs), s.isExpiredOwn(s.now))...)
	case stepRefuse:
		return s.folder.problem(s.crtFile(), fmt.Errorf("expired on %s", day(signer.NotAfter)),
			"check the clock, or put a new certificate and key of that authority there (proa did not make it, and does not replace it)")
	case stepMismatch:
		return s.folder.problem(s.crtFile(), errors.New("does not belong to "+s.keyFile()), "restore both files from the same backup")
	case stepNoCA:
		return s.folder.problem(s.crtFile(), errors.New("is not a certificate authority"),
			"put the authority's certificate first in the file")
	default:
		return fmt.Errorf("nobody knows how to %s", todo)
	}
}

// makeSuccessor makes a new authority that is trusted beside the present one, with a new key or with the one that is stored
// already.
func (s *rotator) makeSuccessor(key bool) error {
	if key {
		if err := s.nextKey(); err != nil {
			return err
		}
	}
	successor, err := selfSign(s.name, s.next, s.now)
	if err != nil {
		return err
	}
	who := "Who has a copy of admin.kubeconfig needs a new one by then"
	switch s.file {
	case fileFrontProxyCA:
		who = "Who trusts front proxies by a copy of the file needs a new one by then"
	case fileKubeletCA:
		who = "Who verifies kubelets by a copy of the file needs a new one by then"
	}
	s.notify(false, "%s: the authority ends on %s; a new one is trusted beside it, and signs from %s on. %s", s.path(), day(s.certs[0].NotAfter), day(promotionTime(s.certs[0], successor)), who)
	return s.publish(append(slices.Clone(s.certs), successor)...)
}

// replace makes an authority in place of one that has expired. The former files stay under other names, because the
// clock may be wrong. The new key is stored as that of a new authority until its certificate is written.
func (s *rotator) replace() error {
	former := s.certs[0]
	if err := s.folder.write(s.crtFile()+oldEnding, s.bundle, modePublic); err != nil {
		return err
	}
	if err := s.folder.write(s.keyFile()+oldEnding, s.keyPEM, modeSecret); err != nil {
		return err
	}
	if err := s.nextKey(); err != nil {
		return err
	}
	fresh, err := selfSign(s.name, s.next, s.now)
	if err != nil {
		return err
	}
	s.notify(true, "%s: the authority has expired on %s, and a new one is made. %s If the clock of this machine is wrong, stop the server, set the clock, and put %s and %s back",
		s.path(), day(former.NotAfter), s.remedy(), s.crtFile()+oldEnding, s.keyFile()+oldEnding)
	rest := slices.DeleteFunc(slices.Clone(s.certs), s.isExpiredOwn(s.now))
	return s.publish(append([]*x509.Certificate{fresh}, rest...)...)
}

// remedy returns what the administrator must do after an expired authority was replaced.
func (s *rotator) remedy() string {
	switch {
	case s.file == fileFrontProxyCA:
		return "Front proxies need new certificates."
	case s.file == fileKubeletCA:
		return "Agents ask for new serving certificates by themselves."
	case s.shared:
		return "Copy this folder to the other servers and start them again; then copy admin.kubeconfig to everybody who has a copy, and let agents on other machines join again with a token of \"proa token create --node NAME\"."
	}
	return "Copy admin.kubeconfig to everybody who has a copy. Nodes on this machine are taken over; agents on other machines must join again with a token of \"proa token create --node NAME\"."
}

// warn adds a message about the end of an authority that is not replaced automatically.
func (s *rotator) warn() {
	end := day(s.certs[0].NotAfter)
	if s.isOwn(s.certs[0]) {
		s.notify(true, "%s: the authority ends on %s. Servers that share a store do not replace it by themselves: put a new private key into %s of one of them, start it again, and copy its folder pki to the others",
			s.path(), end, s.nextFile())
		return
	}
	s.notify(true, "%s: the authority ends on %s. It was not made by proa, which does not replace it: bring a new one in time, with the former one behind it in the file", s.path(), end)
}

func (s *rotator) nextKey() (err error) {
	s.next, s.nextPEM, err = newKeyPEM()
	if err != nil {
		return err
	}
	return s.folder.write(s.nextFile(), s.nextPEM, modeSecret)
}

func (s *rotator) path() string { return filepath.Join(s.folder.path, s.crtFile()) }

func (s *rotator) notify(urgent bool, format string, args ...any) {
	s.news = append(s.news, Notice{Text: fmt.Sprintf(format, args...), Urgent: urgent})
}

func day(t time.Time) string { return t.Format(time.DateOnly) }
