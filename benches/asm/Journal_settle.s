    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x218
    mov ebx,esi
    mov r14,rdi
    mov r13,QWORD PTR [rdi+0x10]
    mov r10,QWORD PTR [rdi+0x18]
    test edx,edx
    mov QWORD PTR [rsp+0x8],r10
    je 2
    cmp r10,r13
    je 3
    mov r15,QWORD PTR [r14]
    mov r12,QWORD PTR [r14+0x8]
    dec r12
    jmp 1
0:
    cmp r10,r13
    je 3
1:
    mov rax,r13
    and rax,r12
    shl rax,0x5
    mov ecx,DWORD PTR [r15+rax*1]
    mov DWORD PTR [r14+0x20],ecx
    cmp ecx,ebx
    jns 2
    add rax,r15
    inc r13
    mov QWORD PTR [r14+0x10],r13
    mov rdi,QWORD PTR [rax+0x8]
    test rdi,rdi
    je 0
    mov rcx,QWORD PTR [rax+0x10]
    mov rsi,QWORD PTR [rax+0x18]
    call QWORD PTR [rcx+0x10]
    mov r10,QWORD PTR [rsp+0x8]
    jmp 0
2:
    cmp r10,r13
    jne 4
3:
    add rsp,0x218
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
4:
    mov rbp,QWORD PTR [r14]
    mov r15,QWORD PTR [r14+0x8]
    dec r15
    mov rax,r10
    neg rax
    mov QWORD PTR [rsp+0x10],rax
    jmp 8
    xchg ax,ax
5:
    mov rdx,rcx
6:
    lea rcx,[rdx-0x1]
    mov rsi,r10
    sub rsi,r12
    cmp rsi,rcx
    cmovae rsi,rcx
    add r12,rsi
    mov QWORD PTR [r14+0x10],r12
    lea rsi,[rsp+0x18]
    call QWORD PTR [rax+0x8]
    mov r10,QWORD PTR [rsp+0x8]
7:
    mov r13,r12
    cmp r10,r12
    je 3
8:
    mov rcx,r13
    and rcx,r15
    shl rcx,0x5
    mov eax,DWORD PTR [rbp+rcx*1+0x0]
    mov DWORD PTR [r14+0x20],eax
    cmp eax,ebx
    jns 3
    add rcx,rbp
    lea r12,[r13+0x1]
    mov QWORD PTR [r14+0x10],r12
    mov rdi,QWORD PTR [rcx+0x8]
    test rdi,rdi
    je 7
    mov rax,QWORD PTR [rcx+0x10]
    mov rcx,QWORD PTR [rcx+0x18]
    mov QWORD PTR [rsp+0x18],rcx
    mov rdx,r10
    sub rdx,r13
    mov rcx,QWORD PTR [rsp+0x10]
    lea rsi,[rcx+r13*1]
    mov ecx,0x1
9:
    mov r8,rsi
    add r8,rcx
    je 6
    lea r8,[rcx+r13*1]
    and r8,r15
    shl r8,0x5
    mov r9,QWORD PTR [rbp+r8*1+0x8]
    test r9,r9
    je 5
    cmp r9,rdi
    jne 5
    add r8,rbp
    mov r9d,DWORD PTR [r8]
    sub r9d,ebx
    jns 5
    cmp QWORD PTR [r8+0x10],rax
    jne 5
    mov r8,QWORD PTR [r8+0x18]
    mov QWORD PTR [rsp+rcx*8+0x18],r8
    inc rcx
    cmp rcx,0x40
    jne 9
    mov edx,0x40
    jmp 6
