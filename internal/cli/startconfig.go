package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/strandline/strandline/internal/nearest"
)

// settingsKey is the key of a configuration file that holds Kafka's settings.
const settingsKey = "settings"

// resolve brings together flags, variables and the configuration file. Flags
// and variables are there already.
func (s *startFlags) resolve(a *app, cmd *cobra.Command) error {
	s.broker.Settings, s.settingFrom = map[string]string{}, map[string]string{}
	if s.configFile != "" {
		if err := s.readFile(cmd.Flags()); err != nil {
			return err
		}
	}
	if err := s.settingsOfEnv(a.vars); err != nil {
		return err
	}
	for _, set := range s.sets {
		if err := s.set("--set", set); err != nil {
			return err
		}
	}
	if err := s.checkTwice(cmd.Flags()); err != nil {
		return err
	}
	if err := s.adopt(); err != nil {
		return err
	}
	if s.inMemory {
		if cmd.Flags().Changed("data-dir") {
			return usagef("--in-memory and --data-dir %s exclude each other", s.broker.DataDir)
		}
		s.broker.DataDir = ""
	} else if s.broker.DataDir == "" {
		return usagef("--data-dir is empty").hint("To keep everything in memory: --in-memory")
	}
	for _, address := range []*string{&s.broker.HTTPListen, &s.broker.DebugListen} {
		if *address == "none" {
			*address = ""
		}
	}
	return nil
}

// checkTwice refuses what is said both by a flag and by Kafka's setting of the
// same meaning: whichever won, somebody would be surprised.
func (s *startFlags) checkTwice(flags *pflag.FlagSet) error {
	for flag, setting := range map[string]string{
		"listen": "listeners", "advertise": "advertised.listeners", "node-id": "node.id",
		"rack": "broker.rack", "data-dir": "log.dirs",
	} {
		if _, ok := s.broker.Settings[setting]; ok && flags.Changed(flag) {
			return usagef("--%s and the setting %s (%s) say the same thing: give one", flag, setting,
				s.settingFrom[setting])
		}
	}
	return nil
}

// adopt takes what a broker is told by flags from settings that mean the same.
func (s *startFlags) adopt() error {
	if rack, ok := s.broker.Settings["broker.rack"]; ok {
		s.broker.Rack = rack
	}
	if text, ok := s.broker.Settings["node.id"]; ok {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return usagef("the setting node.id (%s) is %q: want a number", s.settingFrom["node.id"], text)
		}
		s.broker.NodeID = int32(id)
	}
	return nil
}

// set takes a KEY=VALUE from a place.
func (s *startFlags) set(place, text string) error {
	name, value, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" {
		return usagef("%s %q: want KEY=VALUE", place, text).hint("Example: --set num.partitions=6")
	}
	s.broker.Settings[name] = strings.TrimSpace(value)
	s.settingFrom[name] = place
	return nil
}

// settingsOfEnv takes the settings that variables give.
func (s *startFlags) settingsOfEnv(vars map[string]string) error {
	all := strings.FieldsFunc(vars[envPrefix+"SET"], func(r rune) bool {
		return r == ';' ||
			r == '\n'
	})
	for _, set := range all {
		if strings.TrimSpace(set) == "" {
			continue
		}
		if err := s.set(envPrefix+"SET", set); err != nil {
			return err
		}
	}
	for name, value := range vars {
		if key, ok := strings.CutPrefix(name, envPrefix+"SET_"); ok && key != "" {
			setting := strings.ToLower(strings.ReplaceAll(key, "_", "."))
			s.broker.Settings[setting], s.settingFrom[setting] = value, name
		}
	}
	return nil
}

// readFile reads the configuration file. It sets the flags that neither the
// command line nor the environment gave.
func (s *startFlags) readFile(flags *pflag.FlagSet) error {
	data, err := os.ReadFile(s.configFile)
	if err != nil {
		return usagef("read the configuration: %w", err)
	}
	values, err := parseConfig(data)
	if err != nil {
		return usagef("%s: %w", s.configFile, err)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key == settingsKey {
			err = s.fileSettings(values[key])
		} else {
			err = setFromFile(flags, key, values[key])
		}
		if err != nil {
			return usagef("%s: %w", s.configFile, err)
		}
	}
	return nil
}

// parseConfig reads a YAML document that is a mapping. Keys that occur twice are
// refused by the parser, with their line.
func parseConfig(data []byte) (map[string]any, error) {
	values := map[string]any{}
	if err := yaml.Unmarshal(data, &values); err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return values, nil
}

func setFromFile(flags *pflag.FlagSet, key string, value any) error {
	f := flags.Lookup(key)
	if f == nil || key == "config" || key == "set" || len(f.Annotations[envAnnotation]) == 0 {
		return unknownKey(flags, key)
	}
	if f.Changed {
		return nil
	}
	text, err := scalarOrList(key, value)
	if err != nil {
		return err
	}
	if err := flags.Set(key, text); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func unknownKey(flags *pflag.FlagSet, key string) error {
	if strings.Contains(key, ".") {
		return fmt.Errorf("unknown key %s: Kafka's settings stand under %q", key, settingsKey+":")
	}
	known := []string{settingsKey}
	flags.VisitAll(func(f *pflag.Flag) {
		if len(f.Annotations[envAnnotation]) > 0 && f.Name != "config" && f.Name != "set" {
			known = append(known, f.Name)
		}
	})
	if near := nearest.To(key, slices.Values(known)); near != "" {
		return fmt.Errorf("unknown key %s: did you mean %s?", key, near)
	}
	return fmt.Errorf("unknown key %s: the keys are %s", key, strings.Join(known, ", "))
}

// fileSettings takes the settings of the configuration file.
func (s *startFlags) fileSettings(value any) error {
	if value == nil {
		return nil
	}
	settings, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want KEY: VALUE lines", settingsKey)
	}
	for name, value := range settings {
		text, err := scalarOrList(name, value)
		if err != nil {
			return fmt.Errorf("%s: %w", settingsKey, err)
		}
		s.broker.Settings[name], s.settingFrom[name] = text, s.configFile
	}
	return nil
}

// scalarOrList returns a value as it would stand on a command line; the items
// of a list are joined with commas.
func scalarOrList(key string, value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return strings.TrimSuffix(fmt.Sprintf("%f", v), ".000000"), nil
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			text, err := scalarOrList(key, item)
			if err != nil {
				return "", err
			}
			items[i] = text
		}
		return strings.Join(items, ","), nil
	}
	return "", fmt.Errorf("%s: want a value or a list, not %T: a setting's whole name is one key", key,
		value)
}

// warnMisspelled warns of variables that look like a misspelled flag's: they
// would be ignored in silence. What an orchestrator sets for a service named
// strandline (STRANDLINE_PORT_9092_TCP and such) is far from any.
func (s *start) warnMisspelled(a *app) {
	known := map[string]bool{envPrefix + "SET": true, envPrefix + "BROKERS": true}
	for _, name := range []string{
		"data-dir", "in-memory", "listen", "advertise", "http-listen", "debug-listen", "node-id",
		"cluster-listen", "voters", "rack", "config", "log-format", "log-level",
	} {
		known[envName(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(a.vars)) {
		word, ours := strings.CutPrefix(name, envPrefix)
		if !ours || known[name] || strings.HasPrefix(word, "SET_") {
			continue
		}
		for k := range maps.Keys(known) {
			if nearest.Distance(name, k) <= 2 && len(word) > 4 {
				a.out.warn("%s means nothing here: did you mean %s?", name, k)
				break
			}
		}
	}
}
