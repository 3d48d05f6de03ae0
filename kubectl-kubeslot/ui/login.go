package ui

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

// errBusy is said when sessions are begun too fast, by logging in or with a header.
var errBusy = errors.New("too many try to log in: try again in a moment")

func status(err error) int {
	switch {
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests
	case apierrors.IsUnauthorized(err):
		return http.StatusUnauthorized
	case apierrors.IsForbidden(err):
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}

// credentials are the token and the namespace that a request shows. A header counts before a
// cookie.
func (s *Sessions) credentials(r *http.Request) (token, namespace string) {
	if c, err := r.Cookie(namespaceCookie); err == nil {
		namespace = c.Value
	}
	header := r.Header.Get(cmp.Or(s.TokenHeader, "Authorization"))
	scheme, given, found := strings.Cut(header, " ")
	switch {
	case found && strings.EqualFold(scheme, "Bearer"):
		return strings.TrimSpace(given), namespace
	case s.TokenHeader != "": // the token alone
		return header, namespace
	}
	if c, err := r.Cookie(tokenCookie); err == nil {
		return c.Value, namespace
	}
	return "", namespace
}

// login opens a session for a token, which the browser keeps in a cookie that scripts
// cannot read and other sites cannot send.
func (s *Sessions) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token, namespace := strings.TrimSpace(r.PostFormValue("token")), strings.TrimSpace(r.PostFormValue("namespace"))
	cookies := map[string]string{tokenCookie: token, namespaceCookie: namespace}
	if s.TokenHeader != "" {
		token, _ = s.credentials(r)
		delete(cookies, tokenCookie)
	}
	switch {
	case token == "":
		s.form(w, http.StatusBadRequest, "a token is needed")
		return
	case len(cookies[tokenCookie]) > longestToken:
		s.form(w, http.StatusBadRequest, "the token is too long for a cookie: send it in an Authorization header, or use `kubectl kubeslot ui`")
		return
	case strings.ContainsFunc(token, func(c rune) bool {
		return c <= ' ' || c > '~' || c == ';' || c == ',' ||
			c == '"' || c == '\\'
	}):
		s.form(w, http.StatusBadRequest, "this is not a token")
		return
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0:
		s.form(w, http.StatusBadRequest, "the namespace is not the name of one")
		return
	}
	if _, err := s.open(r, token, namespace); err != nil {
		s.form(w, status(err), err.Error())
		return
	}
	for name, value := range cookies {
		http.SetCookie(w, &http.Cookie{Name: name, Value: value, Path: "/", Secure: true, HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (s *Sessions) logout(w http.ResponseWriter, r *http.Request) {
	if token, namespace := s.credentials(r); token != "" {
		s.close(idOf(token, namespace), nil)
	}
	for _, name := range []string{tokenCookie, namespaceCookie} {
		http.SetCookie(w, &http.Cookie{Name: name, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true,
			SameSite: http.SameSiteStrictMode})
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

var formPage = template.Must(template.New("form").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Kubeslot: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/page/theme.css">
<link rel="stylesheet" href="/page/style.css">
</head>
<body class="ready">
<main class="login">
<form class="card" method="post" action="/login">
<div class="brand"><img src="/page/icon.svg" alt="" width="26" height="26">
<h1>Kubeslot{{with .Cluster}} · {{.}}{{end}}</h1></div>
{{with .Problem}}<p class="notice bad" role="alert">{{.}}</p>{{end}}
{{if not .TokenHeader}}
<p class="muted">You see what your token lets you see. It stays in this browser, and goes to the API server alone.</p>
<label>Token <input name="token" type="password" autocomplete="off" required autofocus></label>
{{end}}
<label>Namespace, if you may not see all <input name="namespace" autocomplete="off" spellcheck="false"></label>
<button class="primary" type="submit">Log in</button>
{{if not .TokenHeader}}
<p class="muted small">A token of a ServiceAccount: <code>kubectl create token NAME</code></p>
{{end}}
</form>
</main>
</body>
</html>
`))

// form answers with the form to log in, and why it is needed.
func (s *Sessions) form(w http.ResponseWriter, code int, problem string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = formPage.Execute(w, map[string]string{"Cluster": s.Cluster, "Problem": problem, "TokenHeader": s.TokenHeader})
}
