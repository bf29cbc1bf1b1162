package datafolder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"proa.dev/internal/buildinfo"
)

// Format is the number of the format in which this program keeps data. It is raised when a program that knows only the
// former number could lose or misread what this one writes, and at no other time, so that most builds can be exchanged
// in both directions.
const Format = 1

// versionFile is the file of a data folder with its Version.
const versionFile = "version"

// Version is the version mark of a data folder, or of an etcd that servers share.
type Version struct {
	// Format is the number of the format of what is stored; 0 stands for programs that wrote no mark.
	Format int `json:"format"`
	// Build names the program that wrote the mark. Nothing is decided by it.
	Build string `json:"build"`
}

// ThisVersion returns the mark that this program writes.
func ThisVersion() Version { return Version{Format: Format, Build: buildinfo.Read().Name()} }

// Accepts returns an error if what has the mark have was written by a newer program than v, which could lose or misread
// it. where names what has the mark.
func (v Version) Accepts(have Version, where string) error {
	if have.Format <= v.Format {
		return nil
	}
	return fmt.Errorf("%s was written by a newer proa (build %s, data format %d) than this one (build %s, data format %d), which could lose data there; nothing was changed. "+
		"Use that build or a later one, or restore a backup that was made before the upgrade", where, have.Build, have.Format, v.Build, v.Format)
}

// ReadVersion returns the mark of the data folder dir; the zero Version if it has none, as folders of earlier programs.
func ReadVersion(dir string) (Version, error) {
	path := filepath.Join(dir, versionFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Version{}, nil
	}
	if err != nil {
		return Version{}, fmt.Errorf("read the version of the data folder: %w", err)
	}
	defer f.Close()
	var v Version
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err == nil && v.Format < 1 {
		err = fmt.Errorf("it has the data format %d", v.Format)
	}
	if err != nil {
		return Version{}, fmt.Errorf("the file %s, which names the program that has written this data folder, cannot be read: %w. "+
			"Put it back from a backup; if no newer proa than this one has used the folder, remove the file", path, err)
	}
	return v, nil
}

// CheckVersion returns an error if the data folder dir was written by a newer program. It changes nothing.
func CheckVersion(dir string) error {
	have, err := ReadVersion(dir)
	if err != nil {
		return err
	}
	return ThisVersion().Accepts(have, "the data folder "+dir)
}

// markVersion writes the mark of this program, unless the folder has it. The mark is on the disk before this returns,
// and so before anything that an earlier program does not understand.
func markVersion(dir string) error {
	have, err := ReadVersion(dir)
	if err != nil || have == ThisVersion() {
		return err
	}
	text, err := json.Marshal(ThisVersion())
	if err != nil {
		return err
	}
	path := filepath.Join(dir, versionFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("mark the data folder with the version: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("mark the data folder with the version: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
