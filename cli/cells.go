package cli

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// burstiness are the names of arrival processes that --arrival knows.
var burstiness = map[string]string{"constant": "constant", "poisson": "1", "bursty": "0.25"} //nolint:gochecknoglobals // a constant table

// searchOwn are the variables that a search hands to its probes: nobody else may set them.
var searchOwn = []string{ //nolint:gochecknoglobals // a constant table
	"LLM_RATE", "LLM_STEADY", "LLM_WARMUP", "LLM_RECOVERY", "LLM_SEED", "LLM_STOP_EARLY_PLANNED",
}

// cell is one search: a workload under an arrival process.
type cell struct {
	workload, arrival string
	env               map[string]string
}

func (c cell) name() string {
	name := strings.Trim(c.workload+"-"+c.arrival, "-")
	if name == "" {
		return "the search"
	}

	return name
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// nextVariable is where the value of one variable of --workload ends: values hold commas, too.
	nextVariable = regexp.MustCompile(`,[A-Z_][A-Z0-9_]*=`)
	workloadName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,62}$`)
)

// variable splits NAME=VALUE.
func variable(flag, text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || !variableName.MatchString(name) {
		return "", "", wrongUse(fmt.Errorf("%s: got %q, expected NAME=VALUE", flag, text))
	}
	if slices.Contains(searchOwn, name) {
		return "", "", wrongUse(fmt.Errorf("%s: %s is what the search hands to its probes: leave it out", flag, name))
	}

	return name, value, nil
}

// workloadCell reads NAME or NAME:KEY=VALUE,KEY=VALUE.
func workloadCell(text string) (cell, error) {
	name, rest, _ := strings.Cut(text, ":")
	c := cell{workload: name, env: map[string]string{"LLM_WORKLOAD": name}}
	if !workloadName.MatchString(name) {
		return c, wrongUse(fmt.Errorf("--workload: got the name %q, expected up to 63 letters, digits, '.', '_', '-' and spaces: "+
			"it names a directory", name))
	}
	for rest != "" {
		pair := rest
		rest = ""
		if at := nextVariable.FindStringIndex(pair); at != nil {
			pair, rest = pair[:at[0]], pair[at[0]+1:]
		}
		key, value, err := variable("--workload "+name, pair)
		if err != nil {
			return c, err
		}
		c.env[key] = value
	}

	return c, nil
}

// arrivalVariable is what LLM_BURSTINESS becomes.
func arrivalVariable(text string) (string, error) {
	if k, known := burstiness[text]; known {
		return k, nil
	}
	if k, err := strconv.ParseFloat(text, 64); err != nil || !(k > 0) || math.IsInf(k, 0) {
		return "", wrongUse(fmt.Errorf("--arrival: got %q, expected constant, poisson, bursty or a number above 0", text))
	}

	return text, nil
}

// shapeOf is the Gamma shape of the gaps that --arrival asks for: +Inf for constant ones.
func shapeOf(arrival string) (float64, error) {
	k, err := arrivalVariable(arrival)
	if err != nil || k == "constant" {
		return math.Inf(1), err
	}

	return strconv.ParseFloat(k, 64) //nolint:wrapcheck // it was checked
}

// cells are all workloads under all arrival processes; one without either where none is named.
func cells(workloads, arrivals []string) ([]cell, error) {
	all := make([]cell, 0, max(len(workloads), 1))
	for _, text := range workloads {
		c, err := workloadCell(text)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		all = append(all, cell{})
	}
	if len(arrivals) > 0 {
		var crossed []cell
		for _, w := range all {
			for _, text := range arrivals {
				k, err := arrivalVariable(text)
				if err != nil {
					return nil, err
				}
				if _, set := w.env["LLM_BURSTINESS"]; set {
					return nil, wrongUse(fmt.Errorf("--workload %s: LLM_BURSTINESS is what --arrival sets: leave one of the two out", w.workload))
				}
				c := cell{workload: w.workload, arrival: text, env: map[string]string{"LLM_BURSTINESS": k}}
				maps.Copy(c.env, w.env)
				crossed = append(crossed, c)
			}
		}
		all = crossed
	}
	seen := make(map[string]bool)
	for _, c := range all {
		if seen[c.name()] {
			return nil, wrongUse(fmt.Errorf("--workload, --arrival: %q is there twice", c.name()))
		}
		seen[c.name()] = true
	}

	return all, nil
}
