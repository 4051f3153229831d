package contract

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expandVariables replaces ${NAME} and ${NAME:-default} in a scalar's value, and $$ by one dollar. The
// default also serves for a variable that is set but empty, as in a POSIX shell. A dollar before any other
// character stands for itself. What a variable holds is not expanded again and never parsed as YAML.
func expandVariables(text string, lookup func(string) (string, bool)) (string, []fault) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	var out strings.Builder
	var faults []fault
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "$")
		out.WriteString(before)
		if !found {
			break
		}
		switch {
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			rest = after[1:]
		case strings.HasPrefix(after, "{"):
			body, behind, closed := strings.Cut(after[1:], "}")
			if !closed {
				faults = append(faults, fault{
					quote(text), `a closing "}" for "${" (a literal dollar is written "$$")`,
				})
				return "", faults
			}
			value, problem := expandOne(body, lookup)
			if problem != nil {
				faults = append(faults, *problem)
			}
			out.WriteString(value)
			rest = behind
		default:
			out.WriteByte('$')
			rest = after
		}
	}
	return out.String(), faults
}

func expandOne(body string, lookup func(string) (string, bool)) (string, *fault) {
	name, fallback, hasFallback := strings.Cut(body, ":-")
	if !variableName.MatchString(name) {
		return "", &fault{quote("${" + body + "}"), "${NAME} or ${NAME:-default}, where NAME is made of letters, digits and _"}
	}
	if strings.Contains(fallback, "${") {
		return "", &fault{quote("${" + body + "}"), "a default without a variable in it"}
	}
	value, set := "", false
	if lookup != nil {
		value, set = lookup(name)
	}
	switch {
	case hasFallback && (!set || value == ""):
		return fallback, nil
	case !set:
		return "", &fault{
			fmt.Sprintf("${%s}, a variable that is not set", name),
			fmt.Sprintf("%s to be set, or a default: ${%s:-default}", name, name),
		}
	default:
		return value, nil
	}
}

// fault is the part of a Problem that does not depend on where it stands.
type fault struct{ found, expected string }
