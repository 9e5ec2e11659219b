;;; lint.el --- Checks of the project's Lisp  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: MIT

;;; Commentary:

;; Byte-compiles every file with warnings as errors, runs checkdoc and
;; check-declare, and checks headers; to be run in batch from the
;; checkout.  Nothing is left behind.

;;; Code:

(require 'bytecomp)
(require 'checkdoc)
(require 'check-declare)
(require 'lisp-mnt)

(defvar emacs-runtime-mcp-lint--faults 0
  "How many faults were found.")

(defun emacs-runtime-mcp-lint--fault (file format &rest args)
  "Report a fault of FILE with FORMAT and ARGS."
  (setq emacs-runtime-mcp-lint--faults (1+ emacs-runtime-mcp-lint--faults))
  (message "%s: %s" file (apply #'format format args)))

(defun emacs-runtime-mcp-lint--compile (file)
  "Byte-compile FILE into nowhere, with warnings as errors."
  (let* ((byte-compile-error-on-warn t)
         (target (make-temp-file "lint" nil ".elc"))
         (byte-compile-dest-file-function (lambda (_) target)))
    (unwind-protect
        (unless (byte-compile-file file)
          (emacs-runtime-mcp-lint--fault file "does not compile cleanly"))
      (delete-file target))))

(defun emacs-runtime-mcp-lint--checkdoc (file)
  "Run checkdoc on FILE."
  (let ((checkdoc-create-error-function
         (lambda (text start _end &optional _unfixable)
           (emacs-runtime-mcp-lint--fault
            file "%d: %s" (line-number-at-pos start) text)
           nil))
        ;; Names that are no words of English prose.
        (checkdoc-symbol-words '("emacsclient" "top-level" "read-only"))
        (sentence-end-double-space t))
    (with-current-buffer (find-file-noselect file)
      (checkdoc-current-buffer t)
      (kill-buffer))))

(defun emacs-runtime-mcp-lint--header (file)
  "Check that FILE opens and ends as a library should."
  (with-temp-buffer
    (insert-file-contents file)
    (unless (lm-summary file)
      (emacs-runtime-mcp-lint--fault file "no summary line"))
    (goto-char (point-min))
    (unless (looking-at ";;; .*lexical-binding: t")
      (emacs-runtime-mcp-lint--fault file "no lexical binding"))
    (unless (or (not (string-match-p "/lisp/" (expand-file-name file)))
                (re-search-forward
                 (format "^(provide '%s)\n;;; %s ends here$"
                         (file-name-base file)
                         (file-name-nondirectory file))
                 nil t))
      (emacs-runtime-mcp-lint--fault file "no proper end"))
    (goto-char (point-min))
    (while (re-search-forward "[ \t]+$" nil t)
      (emacs-runtime-mcp-lint--fault
       file "%d: blanks at the end" (line-number-at-pos)))
    (goto-char (point-min))
    (while (re-search-forward "^(defcustom \\(\\S-+\\)" nil t)
      (let ((name (match-string 1)))
        (goto-char (match-beginning 0))
        (let ((form (read (current-buffer))))
          (unless (plist-get (nthcdr 4 form) :type)
            (emacs-runtime-mcp-lint--fault file "%s has no :type" name)))))))

(defun emacs-runtime-mcp-lint--declarations (files)
  "Check the `declare-function' forms of FILES.
The native core beside them would be searched for Lisp, so it is
done on copies."
  (let ((folder (make-temp-file "lint" t)))
    (unwind-protect
        (progn
          (dolist (file files)
            (copy-file file (file-name-as-directory folder)))
          (when (let ((load-path (list folder)))
                  (check-declare-directory folder))
            (emacs-runtime-mcp-lint--fault
             "lisp" "a declare-function is wrong")))
      (delete-directory folder t))))

(defun emacs-runtime-mcp-lint ()
  "Check all and end Emacs with the right exit code."
  (let ((files (append (directory-files "lisp" t "\\.el\\'")
                       (directory-files "tests" t "\\.el\\'"))))
    (dolist (file files)
      (emacs-runtime-mcp-lint--header file)
      (emacs-runtime-mcp-lint--compile file)
      (emacs-runtime-mcp-lint--checkdoc file))
    (emacs-runtime-mcp-lint--declarations files)
    (kill-emacs (if (zerop emacs-runtime-mcp-lint--faults) 0 1))))

(provide 'lint)
;;; lint.el ends here
