package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxLogins limits the size of the credentials file.
const maxLogins = 10 << 20

// nodeLogins reads the node's own logins. The file is small and pulls are rare, so it is read each time and a change is
// effective at once.
func (m *Images) nodeLogins(repository string) ([]login, error) {
	if m.Logins == "" {
		return nil, nil
	}
	f, err := os.Open(m.Logins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLogins+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxLogins {
		return nil, fmt.Errorf("the file has more than %d bytes", maxLogins)
	}
	k := &loginIndex{}
	if err := k.addFile(text); err != nil {
		return nil, err
	}
	return k.find(repository), nil
}
