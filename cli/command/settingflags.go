package command

import (
	"flag"
	"net/netip"
	"strings"

	"proa.dev/run/settings"
)

// ServerFlags declares a flag for each setting of a server and returns the values that are given.
func ServerFlags(fs *flag.FlagSet) settings.Values { return SettingFlags(fs, settings.All()) }

// SettingFlags declares a flag for each of some settings and returns the values that are given.
func SettingFlags(fs *flag.FlagSet, all []settings.Setting) settings.Values {
	values := settings.Values{}
	defaults := describeDefaults(settings.Default())
	for _, s := range all {
		help := s.Help
		if s.Many {
			help += "; may be given several times"
		}
		if d := defaults[s.Name]; d != "" {
			help += " (default " + d + ")"
		}
		fs.Func(s.Name, help, func(v string) error {
			values[s.Name] = append(values[s.Name], v)
			return nil
		})
	}
	return values
}

// describeDefaults returns the defaults that help shows, by the name of the setting.
func describeDefaults(c settings.Config) map[string]string {
	cidr := func(p netip.Prefix) string { return p.String() }
	return map[string]string{
		"data-dir": c.DataDir, "listen": c.Listen, "name": c.Name, "service-cidr": join(c.ServiceCIDRs, cidr),
		"service-account-issuer": c.Issuer, "log-level": strings.ToLower(c.LogLevel.String()),
	}
}

// join joins the texts of values by commas.
func join[T any](in []T, text func(T) string) string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = text(v)
	}
	return strings.Join(out, ",")
}
