package datafolder

import (
	"fmt"
	"os"
	"path/filepath"

	"proa.dev/parts/bundle"
)

// Programs returns the folder of the programs that belong to this one, such as containerd: a release unpacks them into
// the data folder, and a build of one's own has them beside it.
func Programs(dataDir string) (string, error) {
	set, err := bundle.Carried()
	if err != nil {
		return "", err
	}
	if set == nil {
		return OwnFolder()
	}
	return set.Unpack(filepath.Join(dataDir, "bin"))
}

// FindPrograms tells where the programs are without unpacking them: in a folder or, in a release, carried by this
// program.
func FindPrograms() (folder string, carried []string, err error) {
	set, err := bundle.Carried()
	if err != nil {
		return "", nil, err
	}
	if set != nil {
		carried = set.Names()
	}
	folder, err = OwnFolder()
	return folder, carried, err
}

// OwnFolder returns the folder of this program.
func OwnFolder() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(self), nil
}
