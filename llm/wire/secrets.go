package wire

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

const redacted = "[redacted]"

// minSecretBytes is the length below which a text is none that could be taken out of another: it would be found everywhere.
const minSecretBytes = 4

// minPartBytes is the same for what stands within a value: a short part, such as a cookie's `1`, is no secret of its own.
const minPartBytes = 8

// Secrets are texts that nothing may repeat which is shown or kept: servers like to quote the key that they refuse.
type Secrets []string

// NewSecrets are the texts given, each as it is and as JSON may write it. Those of less than 4 bytes are left out.
func NewSecrets(texts ...string) Secrets {
	var s Secrets
	for _, text := range texts {
		if len(text) < minSecretBytes {
			continue
		}
		s = append(s, text)
		if strings.Contains(text, "/") {
			s = append(s, strings.ReplaceAll(text, "/", `\/`))
		}
	}
	// The longest first: one that begins another would leave the rest of it.
	slices.SortFunc(s, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })

	return slices.Compact(s)
}

// SecretsIn are the values of headers that look like a credential: by the header's name (key, token, secret, auth, cookie, …),
// or by the value's own form. Of `Bearer …` and of cookies, the parts are secret as well.
func SecretsIn(header http.Header) Secrets {
	var texts []string
	for name, values := range header {
		for _, value := range values {
			if namesCredential(name) || credential.MatchString(value) {
				texts = append(texts, partsOf(value)...)
			}
		}
	}

	return NewSecrets(texts...)
}

func namesCredential(header string) bool {
	header = strings.ToLower(header)

	return slices.ContainsFunc([]string{
		"key", "token", "secret", "auth", "cookie", "credential", "password", "passwd", "passphrase", "session", "signature", "jwt", "bearer", "access",
	}, func(word string) bool { return strings.Contains(header, word) })
}

// partsOf are what a server may quote of a header's value.
func partsOf(value string) []string {
	parts := []string{value}
	if scheme, token, ok := strings.Cut(value, " "); ok {
		parts = append(parts, strings.TrimSpace(token))
		if login, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "basic") {
			_, password, _ := strings.Cut(string(login), ":")
			parts = append(parts, string(login), password)
		}
	}
	for _, pair := range strings.Split(value, ";") {
		if _, inner, ok := strings.Cut(pair, "="); ok && len(inner) >= minPartBytes {
			parts = append(parts, strings.TrimSpace(inner))
		}
	}

	return parts
}

// Hide replaces the secrets in a text. It must see the text whole: a part of a secret is not found.
func (s Secrets) Hide(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}

	return text
}

// hideCut is Hide for the beginning of a longer text, whose end may be the beginning of a secret.
func (s Secrets) hideCut(text string) string {
	text = s.Hide(text)
	for _, secret := range s {
		for n := min(len(secret)-1, len(text)); n > 0; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				text = text[:len(text)-n]

				break
			}
		}
	}

	return text
}
