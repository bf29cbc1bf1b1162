package admission

import (
	"errors"
	"os"
	"strings"
)

// HostAppArmor returns why this machine cannot enforce AppArmor profiles; nil if it can. That only changes with a
// reboot.
func HostAppArmor() error {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(text), "Y") {
		return errors.New("AppArmor is not enabled on the host")
	}
	return nil
}
